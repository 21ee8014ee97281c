# What people type. Every target does its own set-up in .venv; the second run of each is quick.
#   make demo        eight workers train through the embedded switch
#   make test        lint, types, unit, loopback and fabric tests, and the packet tests
#   make ptf         the packet tests alone; TARGET=soft or TARGET=bmv2
#   make lint        what `make test` does before the tests
#   make format      rewrite the sources in the house style
#   make wheel-test  build a wheel, install it elsewhere, run the demo there
#   make sanitize    the native code under ASan and UBSan
#   make clean       remove everything that was made here

PYTHON ?= python3
VENV := .venv
BIN := $(CURDIR)/$(VENV)/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
DEMO_RUN_DIR := $(CURDIR)/.run/demo

CXX_SOURCES := $(shell find dataplane host_agent switchml -name '*.cc')
CXX_HEADERS := $(shell find dataplane host_agent switchml -name '*.h')
BUILD_INPUTS := pyproject.toml $(CXX_SOURCES) $(CXX_HEADERS) $(shell find . -name CMakeLists.txt -not -path './build/*' -not -path './.*')
BUILD_TOOLS := $(shell sed -n 's/^requires = \[\(.*\)\]$$/\1/p' pyproject.toml | tr ',' ' ') cmake ninja

.PHONY: help demo test ptf differential lint format wheel-test sanitize clean machine python-lint native-lint docker-lint

TARGET ?= soft
SEQUENCES ?= 100

help:
	@sed -n 's/^#   //p' Makefile

demo: $(VENV)/demo.stamp
	@PATH="$(BIN):$$PATH" $(BIN)/python examples/demo.py --run-dir "$(DEMO_RUN_DIR)"

test: lint
	$(BIN)/pytest tests/unit
	$(BIN)/pytest tests/loopback
	$(BIN)/pytest tests/fabric
	$(MAKE) --no-print-directory ptf TARGET=soft
	$(MAKE) --no-print-directory ptf TARGET=bmv2
	$(MAKE) --no-print-directory differential
	@echo "make test: ran lint, types, unit, loopback and fabric tests, and the packet tests on the targets that were found"

ptf: $(VENV)/dev.stamp
	$(BIN)/python -m ptf_tests.run --target $(TARGET)

# Random sequences on the soft switch and on BMv2, compared.
differential: $(VENV)/dev.stamp
	$(BIN)/python -m ptf_tests.differential.run --sequences $(SEQUENCES)

lint: python-lint native-lint docker-lint

python-lint: $(VENV)/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

native-lint: $(VENV)/dev.stamp
	$(BIN)/clang-format --dry-run -Werror $(CXX_SOURCES) $(CXX_HEADERS)
	printf '%s\n' $(CXX_SOURCES) | xargs -P "$$(nproc)" -n 1 $(BIN)/clang-tidy --quiet -p "$$(ls -d build/cp*)"

docker-lint: $(VENV)/dev.stamp
	PATH="$(BIN):$$PATH" docker/check.sh

format: $(VENV)/dev.stamp
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(CXX_SOURCES) $(CXX_HEADERS)

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
	  echo "make: this machine lacks something; on Debian or Ubuntu: sudo apt-get install $$missing" >&2; exit 1; \
	fi

$(VENV)/venv.stamp: | machine
	@echo "make: setting up $(VENV); this is done once"
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) install $(BUILD_TOOLS)
	@touch $@

# Without build isolation, so that the native code is not compiled anew each time.
$(VENV)/demo.stamp: $(VENV)/venv.stamp $(BUILD_INPUTS)
	@echo "make: compiling and installing into $(VENV), with what the demo needs"
	@$(PIP) install --no-build-isolation --editable '.[demo]'
	@touch $@

$(VENV)/dev.stamp: $(VENV)/venv.stamp $(BUILD_INPUTS)
	@echo "make: compiling and installing into $(VENV), with what the tests need"
	@$(PIP) install --no-build-isolation --editable '.[dev]'
	@touch $@ $(VENV)/demo.stamp

# ---- the wheel -------------------------------------------------------------------------------------------------------

wheel-test: | machine
	rm -rf build/wheel .venv-wheel
	$(PYTHON) -m venv .venv-wheel
	.venv-wheel/bin/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir build/wheel/dist \
	  --config-settings build-dir=build/wheel/tree .
	.venv-wheel/bin/python -m pip install --quiet --disable-pip-version-check "$$(ls build/wheel/dist/switchml-*.whl)[demo]"
	place="$$(mktemp -d)" && cp examples/*.py "$$place" && cd "$$place" && \
	  PATH="$(CURDIR)/.venv-wheel/bin:$$PATH" python demo.py --run-dir "$$place/run" && rm -rf "$$place"
	@echo "make wheel-test: the wheel works without the checkout"

# ---- the native code under ASan and UBSan -----------------------------------------------------------------------------

# Both libraries are named, or the first C++ exception would end the process.
SANITIZERS = $$(g++ -print-file-name=libasan.so) $$(g++ -print-file-name=libstdc++.so.6)

sanitize: | machine
	$(PYTHON) -m venv .venv-sanitize
	.venv-sanitize/bin/python -m pip install --quiet --disable-pip-version-check hypothesis pytest pytest-asyncio \
	  pytest-timeout --config-settings cmake.define.SWITCHML_SANITIZE=ON --config-settings build-dir=build/sanitize .
	LD_PRELOAD="$(SANITIZERS)" ASAN_OPTIONS=detect_leaks=0 .venv-sanitize/bin/pytest tests/unit/test_kernels.py \
	  tests/unit/test_softswitch_pipeline.py tests/loopback/test_softswitch_*.py tests/loopback/test_shm_port.py \
	  tests/loopback/test_collectives.py

clean:
	rm -rf $(VENV) .venv-wheel .venv-sanitize .run build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
	find dataplane host_agent switchml -name '*.so' -delete
