# Each target prepares what it needs; `make demo` and `make test` work on a fresh clone.
PYTHON ?= python3
VENV := .venv
READY := $(VENV)/.ready
BIN := $(VENV)/bin

.PHONY: setup demo test lint mutants bench clean

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

demo: $(READY)
	rm -rf demo
	$(BIN)/macer demo --out demo

lint: $(READY)
	$(BIN)/ruff check src tests
	$(BIN)/ruff format --check src tests
	$(BIN)/mypy

test: lint
	$(BIN)/pytest --numprocesses 2

mutants: $(READY)
	$(BIN)/python tests/mutants.py

bench: $(READY)
	$(BIN)/macer bench
	$(BIN)/macer bench --train

clean:
	rm -rf $(VENV) demo .pytest_cache .mypy_cache .ruff_cache .hypothesis
