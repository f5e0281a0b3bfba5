# Two commands do everything on a fresh machine with Python 3.11+ and a C++ compiler:
#   make demo     describe, price and simulate the default cluster, plan the default job on it, rehearse a small one
#   make test     every check that CI runs
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
NATIVE := CMakeLists.txt $(shell find native -name '*.cpp' -o -name '*.hpp')
PACKAGES := $(shell find src -name __init__.py)
# The machine's own compiler, not the one its Python happened to be built with; CXX=clang++ chooses another.
ifeq ($(origin CXX),default)
CXX := c++
endif
export CXX
# Python keeps what it compiles, whatever the environment says: tests start hundreds of interpreters.
unexport PYTHONDONTWRITEBYTECODE
PATHS := src tests benchmarks examples tools research
# Forks of one process that has collected the tests: more than there are cores, because labs and watchdogs mostly wait.
# make FORKS=1 pytest tests one by one.
FORKS ?= $(shell expr $$(nproc) + 3)
# Those that take longest come first, so that no fork is left alone with one at the end; tests/conftest.py deals files
# that mostly wait among the others.
LONG := tests/test_examples.py tests/test_site.py tests/distributed tests/rehearsal tests/bench tests/auditing tests/lab \
  tests/browser tests/runtime tests/questions tests/cli tests/planning tests/watch tests/sim
REST := $(filter-out $(LONG) tests/__pycache__,$(patsubst %/,%,$(wildcard tests/*/ tests/test_*.py)))

.PHONY: help venv demo test test-fast lint format checks types layers native-test native-test-threads pytest examples stub bench fresh site docs-run serve-site release release-proof clean
.DELETE_ON_ERROR:

help:  ## list these targets
	@awk -F ':.*##' '/^[a-z-]+:.*##/ {printf "  make %-12s%s\n", $$1, $$2}' Makefile

venv: $(VENV)/.installed  ## make .venv with syncline (editable), its extension and the development tools

# bin/pip is the last thing venv writes: a half-made environment is made again.
$(BIN)/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "syncline needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1). Try: make PYTHON=python3.11 $(MAKECMDGOALS)" >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || \
	  { echo "$(PYTHON) cannot make virtual environments. On Debian: apt install python3-venv python3-dev" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

# Tools first: the editable install is built without isolation, so that one pinned set of build tools is used.
$(VENV)/.tools: constraints.txt | $(BIN)/pip
	$(PIP) install --quiet -c constraints.txt scikit-build-core nanobind cmake ninja
	@touch $@

# A new package must be installed again: the editable install lists the packages it found.
$(VENV)/.installed: $(VENV)/.tools pyproject.toml $(PACKAGES) $(NATIVE)
	@command -v $(firstword $(CXX)) >/dev/null || { echo "syncline needs a C++20 compiler and $(CXX) is not there. On Debian: apt install g++ python3-dev" >&2; exit 1; }
	@$(BIN)/python -c 'import pathlib, sys, sysconfig; sys.exit(not pathlib.Path(sysconfig.get_paths()["include"], "Python.h").exists())' || \
	  { echo "syncline needs the header files of Python. On Debian: apt install python3-dev" >&2; exit 1; }
	$(PIP) install --quiet -c constraints.txt --no-build-isolation -e ".[dev]"
	@touch $@

release: venv  ## what a release holds, in dist/: source, wheel for this Python, list of parts
	PYTHON=$(abspath $(BIN))/python bash tools/release/build.sh

release-proof: venv  ## a release built twice and compared, installed on bare Debians, with the oldest dependencies too (root, mmdebstrap)
	$(BIN)/python benchmarks/run.py release --keep

demo: venv  ## describe, price and simulate the default cluster, plan the default job on it, rehearse a small one
	@mkdir -p demo
	@echo "[1/5] the default cluster: 64 hosts of 8 H100, rail-optimized NDR" && echo
	@$(BIN)/syncline fabric show h100-64-rail --html demo/cluster.html --svg demo/cluster.svg
	@echo && echo "[2/5] how a gradient of 1 GiB is summed over its 512 GPUs: bytes by where they go" && echo
	@$(BIN)/syncline schedule cost hierarchical --cluster h100-64-rail --size 1GiB
	@echo && echo "[3/5] what NCCL would choose and reach" && echo
	@$(BIN)/syncline simulate allreduce --cluster h100-64-rail --size 1MiB..1GiB --algorithm nccl
	@echo && echo "[4/5] the default job: Llama 3 70B on those 512 GPUs" && echo
	@$(BIN)/syncline plan h100-64-rail llama3-70b --html demo/plan.html
	@echo && echo "[5/5] a rehearsal: four hosts of 100 Mb/s on this machine, predicted against measured (about a minute)" && echo
	@$(BIN)/syncline rehearse examples/lab-flat.yaml examples/rehearsal-small.yaml --scale 0.1 --html demo/rehearsal.html || \
	  echo "No rehearsal on this machine, for the reason above; everything else works without."
	@echo && echo "Three pages to open:" && for page in cluster plan rehearsal; do \
	  [ -f demo/$$page.html ] && echo "  file://$(CURDIR)/demo/$$page.html" || echo "  (no $$page page: the reason is above)"; done

# The sanitizer build computes while packages arrive, types beside the tests, while labs and ranks wait.
test:  ## everything CI runs
	@$(MAKE) --no-print-directory -j2 lint native-test
	@$(MAKE) --no-print-directory -j2 checks pytest

checks: venv
	@$(MAKE) --no-print-directory --output-sync types layers

test-fast: lint types layers  ## the same without sanitizers and without slow tests
	$(BIN)/python -m pytest -q --forks $(FORKS) -m "not slow"

lint: venv
	$(BIN)/ruff check $(PATHS)
	$(BIN)/ruff format --check $(PATHS)

format: venv  ## put the code into the house form
	$(BIN)/ruff check --fix $(PATHS)
	$(BIN)/ruff format $(PATHS)

types: venv
	$(BIN)/mypy

layers: venv
	$(BIN)/lint-imports

# A build of its own: sanitized code cannot be loaded into an ordinary Python.
native-test: $(VENV)/.tools
	$(BIN)/cmake -S . -B build/native-tests -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN))/ninja \
	  -DCMAKE_BUILD_TYPE=Debug -DSYNCLINE_TESTS=ON -DSYNCLINE_SANITIZE=ON --log-level=WARNING
	MAKEFLAGS= $(BIN)/cmake --build build/native-tests
	build/native-tests/native_tests

# The thread sanitizer excludes the others: another build, of what has threads.
native-test-threads: $(VENV)/.tools  ## the C++ tests of the wire and the sampler under the thread sanitizer
	$(BIN)/cmake -S . -B build/native-threads -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN))/ninja \
	  -DCMAKE_BUILD_TYPE=Debug -DSYNCLINE_TESTS=ON -DSYNCLINE_SANITIZE_THREADS=ON --log-level=WARNING
	MAKEFLAGS= $(BIN)/cmake --build build/native-threads
	build/native-threads/native_tests sampler wire

pytest: venv
	$(BIN)/python -m pytest -q --forks $(FORKS) $(LONG) $(REST) src

examples: venv  ## run the examples and keep what they print in examples/output/
	$(BIN)/python -m pytest -q tests/test_examples.py --regenerate-examples

stub: venv  ## write the type stubs of the extensions from the built extensions
	for module in core codecs packet sampler scanner wire; do \
	  $(BIN)/python -m nanobind.stubgen -q -m syncline._native.$$module -o src/syncline/_native/$$module.pyi; done
	$(BIN)/ruff format src/syncline/_native

bench: venv  ## run every benchmark, keep the results and write benchmarks/RESULTS.md
	$(BIN)/python benchmarks/run.py --all

site: venv  ## the documentation as a site in build/site, every claim computed anew (minutes)
	SYNCLINE_SITE=full NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "The site is in build/site. To read it at http://127.0.0.1:8000: python3 -m http.server --bind 127.0.0.1 -d build/site"

docs-run: venv  ## every command of every page, run in a scratch folder (half an hour of one core)
	$(BIN)/python tools/docs_run.py

serve-site: venv  ## the site at http://127.0.0.1:8000, built again as you write
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve --watch tools/site --watch examples

fresh:  ## a bare Debian with CONTRIBUTING's packages, a clone, `make demo` and `make test` there (root, mmdebstrap)
	$(PYTHON) benchmarks/run.py fresh --keep

clean:  ## remove what was built here
	rm -rf build dist demo .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
