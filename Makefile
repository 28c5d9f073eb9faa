# Everything runs from .venv, which `make env` builds from requirements.lock.
# With uv on the PATH it takes seconds, without it pip does the same. `make PYTHON=...` picks the Python.

.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c

VENV := .venv
BIN := $(VENV)/bin
COMMA := ,
UV := $(shell command -v uv)
# Only pip needs ensurepip; Debian ships Pythons without it.
USABLE := import sys, venv$(if $(UV),,$(COMMA) ensurepip); sys.exit(sys.version_info < (3, 11))
ifndef PYTHON
PYTHON := $(shell for python in python3 python3.13 python3.12 python3.11 python; do \
	$$python -c '$(USABLE)' 2>/dev/null && command -v $$python && break; done)
endif

.PHONY: help env demo test check bench faults docs lock clean

help: ## says what can be made
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-7s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

env: $(VENV)/.installed ## builds .venv from requirements.lock and installs the project into it

demo: env ## shows the guard at work on a burst
	$(BIN)/spillway demo

test: env ## runs the tests and the doctests, a file of tests at a time on each of up to four cores
	$(BIN)/pytest -n auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder

check: env ## runs what CI runs: lint, format, types, layers, tests
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(MAKE) test

bench: env ## measures, and prints the tables that the docs quote
	$(BIN)/python -m benchmarks

faults: env ## kills, starves and corrupts guarded streams from a seed, and checks the books (about 40 minutes)
	$(BIN)/python -m faults

docs: env ## builds the documentation site into build/site, and fails at a broken link
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "build/site/index.html"

lock: ## locks the dependencies again (needs uv); ARGS=--upgrade takes the newest
	scripts/lock $(ARGS)

clean: ## removes .venv and everything that tools leave behind
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A fresh environment each time: nothing stays that the lock does not name.
$(VENV)/.locked: requirements.lock
	@if [ -z "$(PYTHON)$(UV)" ] || { [ -n "$(PYTHON)" ] && ! "$(PYTHON)" -c '$(USABLE)'; }; then \
		echo "No usable Python >= 3.11 found (looked at: $(or $(PYTHON),python3 and python3.11 to 3.13 on the PATH))." >&2; \
		echo "Install one with its venv module (Debian: apt install python3-venv), or install uv," >&2; \
		echo "or name one that is not on the PATH: make env PYTHON=/path/to/python3" >&2; \
		exit 1; \
	fi
ifdef UV
	uv venv --quiet --clear --python "$(or $(PYTHON),>=3.11)" $(VENV)
	uv pip sync --quiet --python $(BIN)/python --require-hashes requirements.lock
else
	"$(PYTHON)" -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements.lock
endif
	@touch $@

$(VENV)/.installed: $(VENV)/.locked pyproject.toml
ifdef UV
	uv pip install --quiet --python $(BIN)/python --no-build-isolation --no-deps --editable .
else
	$(BIN)/python -m pip install --quiet --no-build-isolation --no-deps --editable .
endif
	@touch $@
