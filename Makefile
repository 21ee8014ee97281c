# The project's commands. Each sets itself up in .venv or .venv-torch; its second run is quick.
#   make demo        eight workers train through the embedded switch
#   make check       lint, types, native and unit tests: for while you work
#   make test        these, and the loopback, fabric and packet tests
#   make test-torch  the PyTorch backend's tests, in .venv-torch; ARGS='-k ...' for some of them, TORCH=2.15.0 for that version
#   make test-jax    the tests of all-reduces in JAX programs, in .venv-jax; JAX=0.6.2 for that version
#   make test-rdma   the tests of RDMA cards (RoCEv2), in a guest under QEMU with Linux's software card; needs no root
#   make test-cuda   those of CUDA tensors, on a machine with a GPU; TORCH names a build of PyTorch for it
#   make test-nccl   those of NCCL with SwitchML's plugin, likewise
#   make tutorial    check the tutorial, in .venv-torch: solutions pass, exercises fail; LESSON=3 for one lesson
#   make nightly     all that takes longer; CONTRIBUTING.md names the programs, each of which can be run alone
#   make site        the documentation as a site, with a search, in build/site/html
#   make ptf         the packet tests alone; TARGET=soft, bmv2, bmv2-floats, tofino-emulator or tofino-model
#   make native      compile the C++ code into .venv
#   make lint        the static checks
#   make format      rewrite the sources in the house style
#   make wheels      the source distribution and the wheels of a release, in dist/; ARGS='--arch x86_64 --python 3.12'
#   make deb         the Debian package for this distribution, in dist/
#   make release VERSION=0.2.0  check the commit, build and test its packages, and make the tag
#   make venv        set up .venv with what the tests need; make venv-torch, make venv-jax: .venv-torch, .venv-jax
#   make clean       remove everything that these targets have created

PYTHON ?= python3
VENV := .venv
BIN := $(CURDIR)/$(VENV)/bin
# Where this is set, as in many images, every process of a test compiles the modules of PyTorch again, for 4 s.
unexport PYTHONDONTWRITEBYTECODE
# On a terminal pip shows its progress.
QUIET := $(shell test -t 2 || echo --quiet)
PIP_OPTIONS := $(QUIET) --disable-pip-version-check
PIP := $(BIN)/python -m pip $(PIP_OPTIONS)
DEMO_RUN_DIR := $(CURDIR)/.run/demo

# The oldest version that is supported. Another one gets a separate environment.
TORCH ?= 2.13.0
TORCH_VENV := .venv-torch$(addprefix -,$(filter-out 2.13.0,$(TORCH)))
JAX ?= 0.10.2
JAX_VENV := .venv-jax$(addprefix -,$(filter-out 0.10.2,$(JAX)))
# The libraries that tests train with, in the versions that docs/guides/pytorch-libraries.md names.
TORCH_LIBRARIES := transformers==5.23.0 accelerate==1.15.0 lightning==2.6.6

CXX_SOURCES := $(shell find dataplane host_agent native switchml -name '*.cc')
CXX_HEADERS := $(shell find dataplane host_agent native switchml -name '*.h')
CXX_TESTS := $(shell find tests/native -name '*.cc')
CXX_GUEST := tests/rdma/contributor.cc
C_PROGRAMS := $(shell find examples/c switchml tests/libswitchml -name '*.c')
BUILD_INPUTS := pyproject.toml $(CXX_SOURCES) $(CXX_HEADERS) \
  $(shell find . -name CMakeLists.txt -not -path './build/*' -not -path './.*' -not -path './tests/*')
BUILD_TOOLS := $(shell sed -n 's/^requires = \[\(.*\)\]$$/\1/p' pyproject.toml | tr ',' ' ') cmake ninja wheel

.PHONY: help demo check test test-torch test-jax test-rdma test-cuda test-nccl tutorial nightly site ptf native lint format wheels deb release venv venv-torch venv-jax clean machine native-tests python-lint proto-lint native-lint docker-lint

TARGET ?= soft

help:
	@sed -n 's/^#   //p' Makefile

demo: $(VENV)/demo.stamp
	@PATH="$(BIN):$$PATH" $(BIN)/python examples/demo.py --run-dir "$(DEMO_RUN_DIR)"
	@echo "make: \`. $(VENV)/bin/activate\` puts switchml-ctl and this Python on the PATH of your shell"

venv: $(VENV)/dev.stamp

venv-torch: $(TORCH_VENV)/torch.stamp

venv-jax: $(JAX_VENV)/jax.stamp

# ---- tests: three tiers -----------------------------------------------------------------------------------------------

# Two tests at a time. Failed tests are not repeated.
pytest = $(BIN)/pytest -n 2 --dist worksteal $(1)

# For targets whose programs wait for each other, and keep one core busy. The output of each is printed when it has ended.
TWO_AT_A_TIME = $(MAKE) --no-print-directory --jobs 2 --output-sync=target

check: lint native-tests
	$(call pytest,tests/unit tests/studies tests/prose)

test: check
	$(call pytest,-n 4 tests/loopback tests/libswitchml tests/nccl)  # they wait about as long as they compute
	$(call pytest,-n 3 tests/fabric)  # so do they, a little less
	$(TWO_AT_A_TIME) ptf-soft ptf-bmv2 ptf-bmv2-floats ptf-tofino-emulator differential
	@echo "make test: ran lint, types, native, unit, loopback and fabric tests, and the packet tests on the targets that were found"

tutorial: $(TORCH_VENV)/torch.stamp
	$(TORCH_VENV)/bin/python docs/tutorial/check.py --prove $(LESSON)

nightly: $(VENV)/dev.stamp $(TORCH_VENV)/torch.stamp $(JAX_VENV)/jax.stamp
	.ci/nightly

site: $(VENV)/dev.stamp
	$(BIN)/python -m tools.site

# GoogleTest: the sources from the extra `dev`, or else the machine's (Debian: libgtest-dev).
# The shell looks for them, because make expands a whole recipe before the line of it that installs them.
NATIVE_TESTS = -DSWITCHML_TESTS=ON -DSWITCHML_GTEST="$$(ls -d $(CURDIR)/$(VENV)/src/gtest_vendor 2>/dev/null)"

# The build folder and the place of the modules are those of the editable installation, which must exist.
native: $(if $(wildcard build/cp*),,$(VENV)/dev.stamp)
	$(BIN)/cmake --build build/cp*
	$(BIN)/cmake --install build/cp* --prefix $(VENV)/lib/python3*/site-packages >/dev/null

# The tests are built in the same folder as the extension modules, from the same libraries.
native-tests: $(VENV)/dev.stamp
	$(BIN)/cmake --build build/cp* --target native_tests
	$(BIN)/ctest --test-dir build/cp*/tests/native --output-on-failure --no-tests=error --parallel 2

ptf: ptf-$(TARGET)

ptf-%: $(VENV)/ptf.stamp
	$(BIN)/python -m ptf_tests.run --target $*

# The same random sequences each time, so that a newly found difference does not block an unrelated change.
differential: $(VENV)/dev.stamp
	$(BIN)/python -m ptf_tests.differential.run --sequences 100 --seed 1
	$(BIN)/python -m ptf_tests.differential.run --target tofino-emulator --sequences 50 --seed 1

# The blocks of the pages on PyTorch come first, because they take longest; `-k torch` takes all of tests/torch as well. Three
# at a time, since ranks wait for each other.
test-torch: $(TORCH_VENV)/torch.stamp
	OMP_NUM_THREADS=1 $(TORCH_VENV)/bin/pytest -n 3 --dist worksteal \
	  $(if $(ARGS),tests/torch $(ARGS),tests/fabric/test_documents.py tests/torch -k torch)

test-jax: $(JAX_VENV)/jax.stamp
	$(JAX_VENV)/bin/pytest tests/jax $(ARGS)

# Without QEMU, or without a package of Debian's kernel, they are skipped with a message. ARGS='-k ...' for some of them.
test-rdma: $(VENV)/dev.stamp
	$(call pytest,--long tests/rdma $(ARGS))

# One GPU is enough: the ranks share it. Neither `.ci/run` nor `.ci/nightly` has one, so run these before a release.
test-cuda test-nccl: test-%: $(TORCH_VENV)/torch.stamp
	@$(TORCH_VENV)/bin/python -c 'import torch; raise SystemExit(None if torch.cuda.is_available() else \
	  f"make $@: PyTorch {torch.__version__} in $(TORCH_VENV) finds no CUDA device")'
	$(TORCH_VENV)/bin/pytest tests/torch/test_$*.py

# ---- the sources ------------------------------------------------------------------------------------------------------

# checked(<what>, <command>): a line that says how long it took, and what it printed only if it fails.
checked = @start=$$(date +%s); if said=$$($(2) 2>&1); then echo "$(1): passed in $$(($$(date +%s) - start)) s"; \
  else echo "$$said"; echo "$(1): failed"; exit 1; fi

lint: $(VENV)/dev.stamp
	@$(TWO_AT_A_TIME) native-lint python-lint proto-lint docker-lint

python-lint: $(VENV)/dev.stamp
	$(call checked,ruff check,$(BIN)/ruff check .)
	$(call checked,ruff format,$(BIN)/ruff format --check .)
	$(call checked,lint-imports,$(BIN)/lint-imports --no-cache --no-logo)
	$(call checked,mypy,$(BIN)/mypy)
	$(call checked,prose,$(BIN)/python -m tests.prose.prose_check)

proto-lint: $(VENV)/dev.stamp
	@mkdir -p build
	@$(BIN)/python -m grpc_tools.protoc -I. --include_imports --include_source_info -obuild/controller.binpb switchml/controller/proto/*.proto
	$(call checked,buf lint,$(BIN)/buf lint build/controller.binpb --config controller/proto/buf.yaml)

native-lint: $(VENV)/dev.stamp
	$(call checked,stubs,$(BIN)/python -m tools.generate --check stubs)
	$(call checked,clang-format,$(BIN)/clang-format --dry-run -Werror $(CXX_SOURCES) $(CXX_HEADERS) $(CXX_TESTS) $(CXX_GUEST) $(C_PROGRAMS))
	@test -z "$(NOT_COMPILED)" || echo "make: clang-tidy leaves out sources that are not compiled here, because a library is not installed (DPDK, AF_XDP, GoogleTest): $(NOT_COMPILED)"
	@$(MAKE) --no-print-directory --keep-going --jobs "$$(nproc)" $(patsubst %.cc,build/tidy/%.ok,$(filter $(COMPILED),$(CXX_SOURCES) $(CXX_TESTS)))

# clang-tidy needs the command that compiles a source.
COMPILED = $(or $(shell sed -n 's|^ *"file": "$(CURDIR)/\(.*\)".*|\1|p' build/cp*/compile_commands.json),$(error build/cp*/compile_commands.json has no sources of $(CURDIR)))
NOT_COMPILED = $(filter-out $(COMPILED),$(CXX_SOURCES) $(CXX_TESTS))

# A source is checked again if it, any header, or the set of checks has changed.
build/tidy/%.ok: %.cc $(CXX_HEADERS) .clang-tidy tests/native/.clang-tidy | $(VENV)/dev.stamp
	@mkdir -p $(@D)
	$(BIN)/clang-tidy --quiet -p build/cp* $<
	@touch $@

docker-lint: $(VENV)/dev.stamp
	PATH="$(BIN):$$PATH" docker/check.sh

format: $(VENV)/dev.stamp
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(CXX_SOURCES) $(CXX_HEADERS) $(CXX_TESTS) $(CXX_GUEST) $(C_PROGRAMS)

# ---- packages ----------------------------------------------------------------------------------------------------------

# It needs no compiler of the machine: zig comes with the Python packages.
wheels: $(VENV)/dev.stamp $(VENV)/release.stamp
	$(BIN)/python -m tools.wheels $(ARGS)

deb: $(VENV)/dev.stamp
	$(BIN)/python -m tools.debian $(ARGS)

release: $(VENV)/dev.stamp $(VENV)/release.stamp
	$(BIN)/python -m tools.release $(or $(VERSION),$(error make release needs VERSION=, such as VERSION=0.2.0))

# ---- set-up ----------------------------------------------------------------------------------------------------------

machine:
	@missing=""; \
	if ! command -v $(PYTHON) >/dev/null; then missing="python3 python3-venv python3-dev"; else \
	  $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	    { echo "make: $(PYTHON) is $$($(PYTHON) --version), SwitchML needs 3.10 or later: make PYTHON=..." >&2; exit 1; }; \
	  $(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || missing="$$missing python3-venv"; \
	  test -f "$$($(PYTHON) -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h" || missing="$$missing python3-dev"; \
	fi; \
	command -v g++ >/dev/null || missing="$$missing g++"; \
	if [ -n "$$missing" ]; then \
	  echo "make: packages are missing; on Debian or Ubuntu: sudo apt-get install $$missing" >&2; exit 1; \
	fi

$(VENV)/venv.stamp: | machine
	@echo "make: setting up $(VENV); this is done once"
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) install $(BUILD_TOOLS)
	@touch $@

# Without build isolation, so that unchanged native code is not compiled again.
$(VENV)/demo.stamp $(VENV)/ptf.stamp $(VENV)/release.stamp: $(VENV)/%.stamp: $(VENV)/venv.stamp $(BUILD_INPUTS)
	@echo "make: compiling and installing into $(VENV), with what the target $* needs"
	@$(PIP) install --no-build-isolation --editable '.[$*]'
	@touch $@

$(VENV)/dev.stamp: $(VENV)/venv.stamp $(BUILD_INPUTS)
	@echo "make: compiling and installing into $(VENV), with what the tests need"
	@$(PIP) install --no-build-isolation --editable '.[dev]'
	@$(BIN)/cmake --log-level=WARNING $(NATIVE_TESTS) build/cp*
	@touch $@ $(VENV)/demo.stamp $(VENV)/ptf.stamp

# PyTorch is large, so it has a separate environment. For another build of PyTorch than that of the default index (for
# example without CUDA), set PIP_INDEX_URL or PIP_FIND_LINKS. Most modules of these packages are never imported, so none is
# compiled before it is.
$(TORCH_VENV)/packages.stamp: Makefile | machine
	@echo "make: setting up $(TORCH_VENV) with PyTorch $(TORCH); this is done once"
	@$(PYTHON) -m venv $(TORCH_VENV)
	@$(TORCH_VENV)/bin/python -m pip install $(PIP_OPTIONS) --no-compile $(BUILD_TOOLS) \
	  'pytest>=8' 'pytest-asyncio>=0.24' 'pytest-timeout>=2.3' 'pytest-xdist>=3.5' 'expecttest>=0.3' 'hypothesis>=6.100' \
	  'torch==$(TORCH)' $(TORCH_LIBRARIES)
	@touch $@

$(TORCH_VENV)/torch.stamp: $(TORCH_VENV)/packages.stamp $(BUILD_INPUTS)
	@echo "make: compiling and installing into $(TORCH_VENV)"
	@$(TORCH_VENV)/bin/python -m pip install $(PIP_OPTIONS) --no-build-isolation \
	  --config-settings build-dir=build/$(TORCH_VENV:.venv-%=%) --editable '.[demo,ptf,synthesis,torch,torchft,tune]'
	@touch $@

# JAX has a separate environment too, since it may need another numpy.
$(JAX_VENV)/jax.stamp: $(BUILD_INPUTS) | machine
	@echo "make: setting up $(JAX_VENV) with JAX $(JAX)"
	@test -d $(JAX_VENV) || $(PYTHON) -m venv $(JAX_VENV)
	@$(JAX_VENV)/bin/python -m pip install $(PIP_OPTIONS) --no-compile $(BUILD_TOOLS) \
	  'pytest>=8' 'pytest-asyncio>=0.24' 'pytest-timeout>=2.3' 'jax==$(JAX)'
	@$(JAX_VENV)/bin/python -m pip install $(PIP_OPTIONS) --no-build-isolation \
	  --config-settings build-dir=build/$(JAX_VENV:.venv-%=%) --editable '.[jax]'
	@touch $@

clean:
	rm -rf $(VENV) .venv-torch* .venv-jax* .venv-wheel .venv-asan .venv-tsan .run build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
	find dataplane host_agent switchml -name '*.so' -delete
