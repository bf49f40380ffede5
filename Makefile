# Each target prepares what it needs; `make demo` and `make test` work on a fresh clone.
PYTHON ?= python3
VENV := .venv
READY := $(VENV)/.ready
BIN := $(VENV)/bin

.PHONY: setup demo test lint mutants kernels bench clean

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

# The GPU's kernels, interpreted on a CPU. Triton is a gigabyte, so it is fetched for this alone.
kernels: $(READY)
	test -d $(VENV)/triton || $(BIN)/pip install --quiet --no-deps --target $(VENV)/triton triton==3.9.0
	TRITON_INTERPRET=1 PYTHONPATH=$(VENV)/triton $(BIN)/pytest -q -n0 tests/test_kernels.py

bench: $(READY)
	$(BIN)/macer bench
	$(BIN)/macer bench --train

clean:
	rm -rf $(VENV) demo .pytest_cache .mypy_cache .ruff_cache .hypothesis
