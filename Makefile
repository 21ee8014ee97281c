# The project's commands. Every target sets itself up in .venv; its second run is quick.
#   make demo        eight workers train through the embedded switch
#   make check       lint, types, native and unit tests: for while you work
#   make test        lint, types, native, unit, loopback and fabric tests, and the packet tests
#   make test-native the unit tests of the native code alone; ARGS='-R Window' for some of them
#   make ptf         the packet tests alone; TARGET=soft, bmv2, bmv2-floats, tofino-emulator or tofino-model
#   make test-devices  tests of DPDK and AF_XDP, also the long ones, if their libraries are installed; as root also over veth
#   make bench-devices  all-reduces over UDP, AF_XDP and DPDK in turns; as root
#   make docker-test build the container images and run their services; ARGS=--optional skips tests that lack something
#   make docker-requirements  resolve the packages of the images again, with their hashes; ARGS=--upgrade for newer ones
#   make test-torch  the PyTorch backend's tests, with PyTorch in .venv-torch; ARGS='-k ...' for some of them
#   make torch-suite PyTorch's own tests of a backend, run with SwitchML; takes a quarter of an hour
#   make p4          compile the P4 program into dataplane/p4/build; TARGET=bmv2, or TARGET=tofino, which prints its resources
#   make faults      the tests of failures, including those that are too long for `make test`
#   make chaos       jobs with one random fault each; ARGS='--runs 100 --seed 7', --racks 2 for trees, or --short
#   make storms      jobs with several faults each, also in PyTorch (in .venv-torch); ARGS='--runs 200 --seed 7'
#   make soak        64 ranks in 16 jobs for an hour, whose processes must not grow; ARGS='--minutes 1' for a short run
#   make job-starts  start and stop 10,000 jobs without a command, and check that no process has grown
#   make many-ranks  jobs of up to 1,024 real ranks on a tree of switches, and their cost; ARGS=--short for one of 130
#   make flood       measure the effect of a job that floods the switch with garbage on its neighbour
#   make lost-worker kill a worker in the middle of a 64 MB all-reduce, N=100 times over each transport
#   make bench       measure, compared with Gloo and Open MPI; ARGS='allreduce --workers 2', see docs/performance.md
#   make bench-links a short run of `bench links`, all-reduces over links of a limited rate; as root
#   make model       check the model of the protocol with SPIN, if it is found; ARGS=--short for a one-minute run
#   make lint        the static checks that `make test` runs before the tests
#   make format      rewrite the sources in the house style
#   make stubs       regenerate the type stubs of the extension modules after a change of their bindings
#   make wheel-test  build a wheel, install it together with packages of the same names, run the demo there
#   make test-kernels  compare the arithmetic of all instruction sets; ARGS=--all for every float32 value
#   make test-neon   the same for 64-bit ARM, under qemu on other machines; needs a cross compiler
#   make sanitize    the native code under ASan and UBSan
#   make sanitize-native  the native code's unit tests alone under ASan and UBSan
#   make tsan        the native code under ThreadSanitizer; ARGS='tests/loopback/test_shm_port.py' for some of the tests
#   make tsan-python  a selection of the extension modules' tests under ThreadSanitizer, for `.ci/run`
#   make fuzz        hostile input for the native code (needs clang) and the servers (atheris); ARGS='--seconds 600 --coverage'
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

TORCH_VENV := .venv-torch
TORCH := torch==2.13.0
# The libraries that tests train with, in the versions that docs/pytorch.md names.
TORCH_LIBRARIES := transformers==5.23.0 accelerate==1.15.0 lightning==2.6.6

CXX_SOURCES := $(shell find benchmarks dataplane host_agent native switchml -name '*.cc')
CXX_HEADERS := $(shell find benchmarks dataplane host_agent native switchml -name '*.h')
CXX_TESTS := $(shell find tests/native -name '*.cc')
BUILD_INPUTS := pyproject.toml $(CXX_SOURCES) $(CXX_HEADERS) \
  $(shell find . -name CMakeLists.txt -not -path './build/*' -not -path './.*' -not -path './tests/*')
BUILD_TOOLS := $(shell sed -n 's/^requires = \[\(.*\)\]$$/\1/p' pyproject.toml | tr ',' ' ') cmake ninja wheel

.PHONY: help demo check test test-native faults chaos storms soak job-starts many-ranks flood lost-worker bench bench-links model test-devices bench-devices test-torch torch-suite docker-test docker-requirements ptf differential lint stubs format wheel-test test-kernels test-neon sanitize sanitize-native tsan tsan-python fuzz clean machine python-lint proto-lint native-lint docker-lint

TARGET ?= soft
SEQUENCES ?= 100

help:
	@sed -n 's/^#   //p' Makefile

demo: $(VENV)/demo.stamp
	@PATH="$(BIN):$$PATH" $(BIN)/python examples/demo.py --run-dir "$(DEMO_RUN_DIR)"
	@echo "make: \`. $(VENV)/bin/activate\` puts switchml-ctl and this Python on the PATH of your shell"

# Two tests at a time. Failed tests are not repeated.
pytest = $(BIN)/pytest -n 2 --dist worksteal $(1)

# For targets whose programs wait for each other, and keep one core busy. The output of each is printed when it has ended.
TWO_AT_A_TIME = $(MAKE) --no-print-directory --jobs 2 --output-sync=target

check: lint test-native
	$(call pytest,tests/unit tests/prose)

test: check
	$(call pytest,-n 4 tests/loopback)  # they wait about as long as they compute
	$(call pytest,tests/fabric)
	$(TWO_AT_A_TIME) ptf-soft ptf-bmv2 ptf-bmv2-floats ptf-tofino-emulator differential SEED=1
	@echo "make test: ran lint, types, native, unit, loopback and fabric tests, and the packet tests on the targets that were found"

ctest = $(BIN)/ctest --test-dir $(1)/tests/native --output-on-failure --no-tests=error --parallel 2 $(ARGS)
# GoogleTest: the sources from the extra `dev`, or else the machine's (Debian: libgtest-dev).
# The shell looks for them, because make expands a whole recipe before the line of it that installs them.
NATIVE_TESTS = -DSWITCHML_TESTS=ON -DSWITCHML_GTEST="$$(ls -d $(CURDIR)/$(VENV)/src/gtest_vendor 2>/dev/null)"

# The tests are built in the same folder as the extension modules, from the same libraries.
test-native: $(VENV)/dev.stamp
	$(BIN)/cmake --build build/cp* --target native_tests
	$(call ctest,build/cp*)

ptf: ptf-$(TARGET)

ptf-%: $(VENV)/dev.stamp
	$(BIN)/python -m ptf_tests.run --target $*

bench-devices: $(VENV)/dev.stamp
	$(BIN)/python -m tests.loopback.device_times $(ARGS)

test-devices: $(VENV)/dev.stamp
	$(call pytest,-m 'long_devices or not long_devices' \
	  tests/loopback/test_devices.py tests/loopback/test_device_queues.py tests/loopback/test_dpdk_memif.py \
	  tests/loopback/test_veth_devices.py $(ARGS))

docker-test: $(VENV)/dev.stamp
	$(BIN)/pytest -m docker --durations 0 --durations-min 1 tests/docker $(ARGS)

# For the Python version of docker/Dockerfile. Versions already in the files are kept unless a requirement changes them.
resolve = $(BIN)/uv pip compile --quiet --python-version 3.12 --generate-hashes --no-annotate \
  --custom-compile-command 'make docker-requirements' $(ARGS)

docker-requirements: $(VENV)/dev.stamp
	$(resolve) --output-file docker/requirements.txt pyproject.toml
	$(resolve) --output-file docker/requirements-test.txt --constraint docker/requirements.txt \
	  --extra demo --extra ptf pyproject.toml
	printf '%s\n' $(BUILD_TOOLS) pip setuptools wheel | $(resolve) --output-file docker/requirements-build.txt -

# The blocks of the pages on PyTorch come first, because they take longest; `-k torch` takes all of tests/torch as well. Three
# at a time, since ranks wait for each other.
test-torch: $(TORCH_VENV)/torch.stamp
	OMP_NUM_THREADS=1 $(TORCH_VENV)/bin/pytest -n 3 --dist worksteal \
	  $(if $(ARGS),tests/torch $(ARGS),tests/fabric/test_documents.py tests/torch -k torch)

faults: $(VENV)/dev.stamp
	$(call pytest,--long tests/fabric/test_jobs.py tests/fabric/test_lost_workers.py tests/fabric/test_lost_switch.py tests/fabric/test_after_crashes.py tests/fabric/test_systemd.py tests/fabric/test_documents.py $(ARGS))
	$(call pytest,--long tests/loopback/test_standby.py tests/loopback/test_controller_killed.py tests/loopback/test_quiesce.py $(ARGS))

chaos: $(VENV)/dev.stamp
	$(BIN)/python -m tests.chaos.run $(ARGS)

storms: $(TORCH_VENV)/torch.stamp
	$(TORCH_VENV)/bin/python -m tests.chaos.run --storms $(ARGS)

soak: $(VENV)/dev.stamp
	$(BIN)/python -m tests.soak.run $(ARGS)

job-starts: $(VENV)/dev.stamp
	$(BIN)/python -m tests.soak.starts $(ARGS)

many-ranks: $(VENV)/dev.stamp
	$(BIN)/python -m tests.soak.many_ranks $(ARGS)

flood: $(VENV)/dev.stamp
	$(BIN)/python -m tests.soak.flood $(ARGS)

N ?= 100

lost-worker: $(VENV)/dev.stamp
	$(BIN)/pytest tests/fabric/test_lost_workers.py -k two_seconds --long --quiet-machine --lost-workers $(N) --timeout $$((60 + 20 * $(N)))

torch-suite: $(TORCH_VENV)/torch.stamp
	$(TORCH_VENV)/bin/python -m tests.torch.pytorch_suite $(ARGS)

# Random sequences on the soft switch and on BMv2, compared, and on the soft switch and the model of Tofino's pipeline.
# `make test` gives a seed, so that a newly found difference does not block an unrelated change.
differential: seed = $(if $(SEED),--seed $(SEED))
differential: $(VENV)/dev.stamp
	$(BIN)/python -m ptf_tests.differential.run --sequences $(SEQUENCES) $(seed)
	$(BIN)/python -m ptf_tests.differential.run --target tofino-emulator --sequences $$((($(SEQUENCES) + 1) / 2)) $(seed)

p4: $(VENV)/dev.stamp
	$(BIN)/python -m switchml.dataplane.compiler.compile_p4 --target $(if $(filter soft,$(TARGET)),bmv2,$(TARGET))

# docs/performance.md explains the measurements.
bench: $(VENV)/dev.stamp
	@$(BIN)/switchml-ctl bench $(if $(ARGS),$(ARGS),--help)

# Gloo takes part if PyTorch is in .venv-torch.
bench-links: ARGS ?= --link 50mbit --workers 2 --size 1MiB --repetitions 1 --peers $(if $(wildcard $(TORCH_VENV)/bin/python),gloo,'')
bench-links: $(VENV)/dev.stamp
	@if [ "$$(id -u)" -ne 0 ]; then echo "bench-links: skipped: only root can create network namespaces"; else \
	  $(BIN)/switchml-ctl bench links --torch-python $(CURDIR)/$(TORCH_VENV)/bin/python $(ARGS); fi

# Needs only Python, SPIN and a C compiler. `python -m model.run --pictures docs` draws the traces again.
model:
	$(PYTHON) -m model.run $(ARGS)

lint: $(VENV)/dev.stamp
	@$(TWO_AT_A_TIME) native-lint python-lint proto-lint docker-lint

python-lint: $(VENV)/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache --no-logo
	$(BIN)/mypy
	$(BIN)/mypy tests/prose native/bindings/generate_stubs.py tools
	$(BIN)/python -m tests.prose.prose_check

proto-lint: $(VENV)/dev.stamp
	mkdir -p build
	$(BIN)/python -m grpc_tools.protoc -I. --include_imports --include_source_info -obuild/controller.binpb switchml/controller/proto/*.proto
	$(BIN)/buf lint build/controller.binpb --config controller/proto/buf.yaml

native-lint: $(VENV)/dev.stamp
	$(BIN)/python native/bindings/generate_stubs.py --check
	$(BIN)/clang-format --dry-run -Werror $(CXX_SOURCES) $(CXX_HEADERS) $(CXX_TESTS)
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

stubs: $(VENV)/dev.stamp
	$(BIN)/python native/bindings/generate_stubs.py

format: $(VENV)/dev.stamp
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(CXX_SOURCES) $(CXX_HEADERS) $(CXX_TESTS)

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
$(VENV)/demo.stamp: $(VENV)/venv.stamp $(BUILD_INPUTS)
	@echo "make: compiling and installing into $(VENV), with what the demo needs"
	@$(PIP) install --no-build-isolation --editable '.[demo]'
	@touch $@

$(VENV)/dev.stamp: $(VENV)/venv.stamp $(BUILD_INPUTS)
	@echo "make: compiling and installing into $(VENV), with what the tests need"
	@$(PIP) install --no-build-isolation --editable '.[dev]'
	@$(BIN)/cmake --log-level=WARNING $(NATIVE_TESTS) build/cp*
	@touch $@ $(VENV)/demo.stamp

# PyTorch is large, so it has a separate environment. For another build of PyTorch than that of the default index (for
# example without CUDA), set PIP_INDEX_URL or PIP_FIND_LINKS. Most modules of these packages are never imported, so none is
# compiled before it is.
$(TORCH_VENV)/packages.stamp: Makefile | machine
	@echo "make: setting up $(TORCH_VENV) with $(TORCH); this is done once"
	@$(PYTHON) -m venv $(TORCH_VENV)
	@$(TORCH_VENV)/bin/python -m pip install $(PIP_OPTIONS) --no-compile $(BUILD_TOOLS) \
	  'pytest>=8' 'pytest-asyncio>=0.24' 'pytest-timeout>=2.3' 'pytest-xdist>=3.5' 'expecttest>=0.3' 'hypothesis>=6.100' \
	  '$(TORCH)' $(TORCH_LIBRARIES)
	@touch $@

$(TORCH_VENV)/torch.stamp: $(TORCH_VENV)/packages.stamp $(BUILD_INPUTS)
	@echo "make: compiling and installing into $(TORCH_VENV)"
	@$(TORCH_VENV)/bin/python -m pip install $(PIP_OPTIONS) --no-build-isolation \
	  --config-settings build-dir=build/torch --editable '.[demo,torch,torchft,tune]'
	@touch $@

# ---- the wheel -------------------------------------------------------------------------------------------------------

wheel-test: $(VENV)/dev.stamp
	$(BIN)/pytest -v --durations 0 --durations-min 5 tests/wheel
	@echo "make wheel-test: the wheel works without the checkout"

# ---- the native code under ASan and UBSan -----------------------------------------------------------------------------

# libstdc++ is preloaded too: without it, the first C++ exception would end the process.
SANITIZERS = $$(g++ -print-file-name=libasan.so) $$(g++ -print-file-name=libstdc++.so.6)

SANITIZED_TESTS := tests/unit/test_kernels.py tests/unit/test_lane_kernels.py tests/unit/test_softswitch_kernels.py \
  tests/unit/test_softswitch_pipeline.py tests/loopback/test_softswitch_*.py tests/loopback/test_shm_port.py \
  tests/loopback/test_collectives*.py tests/loopback/test_udp_threads.py

# The native tests that are left out: 4,096 streams take a minute and show nothing that 1,024 do not, and DPDK's own code is
# not instrumented.
NOT_SANITIZED := 'StreamsOfRanks.*/4096|^dpdk\.'

# sanitized(<name>, <sanitizers>): .venv-<name> with the native code compiled so, and the native unit tests, which are
# built in the same folder from the same libraries.
define sanitized
$(PYTHON) -m venv .venv-$(1)
.venv-$(1)/bin/python -m pip install $(PIP_OPTIONS) $(BUILD_TOOLS) hypothesis ml-dtypes pytest pytest-asyncio pytest-timeout \
  pytest-xdist
.venv-$(1)/bin/python -m pip install $(PIP_OPTIONS) --no-build-isolation --config-settings build-dir=build/$(1) \
  --config-settings cmake.define.SWITCHML_SANITIZE=$(2) .
.venv-$(1)/bin/cmake --log-level=WARNING $(NATIVE_TESTS) build/$(1)
$(if $(ARGS),,.venv-$(1)/bin/cmake --build build/$(1) --target native_tests)
$(if $(ARGS),,$(call ctest,build/$(1)) --exclude-regex $(NOT_SANITIZED))
endef

# The native unit tests alone need no extension modules.
sanitize-native: $(VENV)/dev.stamp
	$(BIN)/cmake --log-level=WARNING -G Ninja -S . -B build/$@ -DSWITCHML_MODULES=OFF -DSWITCHML_SANITIZE=address,undefined \
	  -DCMAKE_MAKE_PROGRAM=$(BIN)/ninja $(NATIVE_TESTS)
	$(BIN)/cmake --build build/$@ --target native_tests
	$(call ctest,build/$@) --exclude-regex $(NOT_SANITIZED)

comma := ,
sanitize: ARGS =
sanitize: $(VENV)/dev.stamp
	$(call sanitized,$@,address$(comma)undefined)
	LD_PRELOAD="$(SANITIZERS)" ASAN_OPTIONS=detect_leaks=0 .venv-sanitize/bin/pytest -n 2 --dist worksteal \
	  $(SANITIZED_TESTS)

# A report ends the process. It goes to a file, because pytest would lose what a process writes just before its end.
TSAN_REPORT := $(CURDIR)/build/tsan-report
TSAN = suppressions=$(CURDIR)/tests/native/tsan.supp halt_on_error=1 log_path=$(TSAN_REPORT)

# Tests that count timeouts, or wait for many, take too long.
TSAN_TESTS := $(SANITIZED_TESTS) -k 'not million and not test_ranks_over_both and not (test_sparse_sums and 0.1)'

# The interpreter itself is not instrumented.
tsan: $(VENV)/dev.stamp
	$(call sanitized,$@,thread)
	@rm -f $(TSAN_REPORT).*
	LD_PRELOAD="$$(g++ -print-file-name=libtsan.so)" TSAN_OPTIONS="$(TSAN)" .venv-tsan/bin/pytest -n 2 --dist worksteal \
	  $(or $(ARGS),$(TSAN_TESTS)) || { cat $(TSAN_REPORT).*; exit 1; }

# The tests in which threads of the native code work at the same time: ranks, progress threads, data threads, shards, ports,
# and calls that change the switch's tables. The others repeat these with other values, dtypes and lanes, or test code of a
# single thread. The native unit tests are left out, because these tests use their code too.
TSAN_SHORT := tests/loopback/test_shm_port.py tests/loopback/test_udp_threads.py tests/loopback/test_softswitch_udp.py \
  tests/loopback/test_softswitch_frames.py tests/loopback/test_softswitch_packet_ports.py tests/loopback/test_collectives.py \
  tests/loopback/test_collectives_parts.py tests/loopback/test_collectives_sparse.py -k 'not million and not test_ranks_over_both \
  and not test_sparse_sums and not test_a_column and not (test_float32 and not normal)'

tsan-python:
	$(MAKE) --no-print-directory tsan ARGS="$(TSAN_SHORT)"

# ---- hostile input ----------------------------------------------------------------------------------------------------

fuzz: $(VENV)/dev.stamp
	@$(BIN)/python -c 'import atheris' 2>/dev/null || $(PIP) install 'atheris>=2.3' || echo "make: no atheris for this Python"
	$(BIN)/python -m tests.fuzz.run $(ARGS)

# ---- the arithmetic ----------------------------------------------------------------------------------------------------

test-kernels: $(VENV)/venv.stamp
	PATH="$(BIN):$$PATH" tests/native/run.sh native $(ARGS)

test-neon: $(VENV)/venv.stamp
	PATH="$(BIN):$$PATH" tests/native/run.sh neon $(ARGS)

clean:
	rm -rf $(VENV) $(TORCH_VENV) .venv-wheel .venv-sanitize .venv-tsan .run build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
	find benchmarks dataplane host_agent switchml -name '*.so' -delete
