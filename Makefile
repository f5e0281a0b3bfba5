# Two commands do everything on a fresh machine with Python 3.11+ and a C++ compiler:
#   make demo     describe, draw and price the default cluster
#   make test     every check that CI runs
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
NATIVE := CMakeLists.txt $(shell find native -name '*.cpp' -o -name '*.hpp')
PATHS := src tests benchmarks examples

.PHONY: help venv demo test test-fast lint format types layers native-test pytest examples stub bench clean
.DELETE_ON_ERROR:

help:  ## list these targets
	@awk -F ':.*##' '/^[a-z-]+:.*##/ {printf "  make %-12s%s\n", $$1, $$2}' Makefile

venv: $(VENV)/.installed  ## make .venv with syncline (editable), its extension and the development tools

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "syncline needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1). Try: make PYTHON=python3.11 $(MAKECMDGOALS)" >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || \
	  { echo "$(PYTHON) cannot make virtual environments. On Debian: apt install python3-venv python3-dev" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

# Tools first: the editable install is built without isolation, so that one pinned set of build tools is used.
$(VENV)/.tools: constraints.txt | $(BIN)/python
	$(PIP) install --quiet -c constraints.txt scikit-build-core nanobind cmake ninja
	@touch $@

$(VENV)/.installed: $(VENV)/.tools pyproject.toml $(NATIVE)
	@command -v c++ >/dev/null || { echo "syncline needs a C++20 compiler. On Debian: apt install g++ python3-dev" >&2; exit 1; }
	$(PIP) install --quiet -c constraints.txt --no-build-isolation -e ".[dev]"
	@touch $@
