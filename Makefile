# Works from a fresh clone with only Python 3.11+, make and a package index: everything goes into .venv.

SHELL := /bin/bash
PYTHON ?= $(shell for python in python3.13 python3.12 python3.11 python3; do \
	command -v $$python >/dev/null 2>&1 && $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& echo $$python && break; done)
BIN := .venv/bin
READY := .venv/.ready
JOBS ?= $(shell n=$$(nproc 2>/dev/null || echo 2); echo $$(( n > 4 ? 4 : n )))

.DEFAULT_GOAL := help
.PHONY: help demo serve test check fmt docs clean

help: ## list what can be made
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

demo: $(READY) ## export a report, retry a dead letter, cancel a run: all for real, then stop
	@$(BIN)/tenure demo

serve: $(READY) ## run the service, with a tour by curl
	@$(BIN)/tenure serve --tour

test: $(READY) ## run all tests on a real PostgreSQL
	$(BIN)/pytest -q -n $(JOBS)

check: $(READY) ## format, lint, types, floors, docs
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/tenure docs --check

fmt: $(READY) ## put the code into its form
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(READY) ## print the pages that come from the code
	$(BIN)/tenure docs

clean: ## remove what was installed and made (not the data in .tenure)
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(READY): pyproject.toml
	@test -n "$(PYTHON)" || { echo "Tenure needs Python 3.11 or newer: install it, or say where it is with make PYTHON=..." >&2; exit 1; }
	@echo "Installing into .venv ($(PYTHON)); this takes about a minute the first time."
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(BIN)/python -m ensurepip >/dev/null 2>&1 || { \
		echo ".venv has no pip: make clean, and try again (on Debian and Ubuntu install python3-venv first)" >&2; exit 1; }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $(READY)
