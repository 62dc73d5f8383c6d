# Works from a fresh clone with only Python 3.11+, make and a package index: everything goes into .venv.

SHELL := /bin/bash
PYTHON ?= $(shell for python in python3.13 python3.12 python3.11 python3; do \
	command -v $$python >/dev/null 2>&1 && $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& echo $$python && break; done)
BIN := .venv/bin
READY := .venv/.ready
JOBS ?= $(shell n=$$(nproc 2>/dev/null || echo 2); echo $$(( n > 4 ? 4 : n )))

.DEFAULT_GOAL := help
.PHONY: help demo serve test check fmt docs bench bench-quick bench-install chaos clean

help: ## list what can be made
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

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

MINUTES ?= 10
SEED ?= $(shell echo $$(( RANDOM * 32768 + RANDOM )))

chaos: $(READY) ## break everything for MINUTES=10 from SEED=…, a rolling deploy at the end, and check what became of it
	$(BIN)/python -m tests.chaos --minutes $(MINUTES) --seed $(SEED)

bench: bench-install ## measure Tenure beside other queues: table and figures in benchmarks/results (about an hour)
	$(BIN)/python -m benchmarks

bench-quick: bench-install ## the same in three minutes: Tenure, the minimal loop and PgQueuer, one round
	$(BIN)/python -m benchmarks enqueue bulk drain remote-drain pickup --profile quick --rounds 1 --subjects tenure,minimal,pgqueuer --name quick

bench-install: .venv/.bench ## install what is measured beside Tenure

.venv/.bench: $(READY) pyproject.toml
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,bench]'
	@touch $@

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
