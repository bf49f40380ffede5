# Each target prepares what it needs; `make demo` and `make test` work on a fresh clone.
PYTHON ?= python3
VENV := .venv
READY := $(VENV)/.ready
BIN := $(VENV)/bin
OLDEST := .venv-oldest
PINS := .venv-pins
NPM := build/npm
HAS_NPM := $(shell command -v npm)

# Triton's wheel, a gigabyte: kept outside the clone, by its version and Python's.
TRITON_VERSION := 3.9.0
PYTHON_TAG := $(shell $(PYTHON) -c 'import sys; print(sys.implementation.cache_tag)')
TRITON := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/macer/triton-$(TRITON_VERSION)-$(PYTHON_TAG)
INTERPRETED := TRITON_INTERPRET=1 PYTHONPATH=$(TRITON)

.PHONY: setup demo docs browser check test lint mutants kernels bench pins oldest clean

# The package and its tools in an environment $(1), at the versions of $(2). hatchling comes first and
# builds there: for a build apart from it pip takes the newest hatchling, whatever $(2) says.
define install
	$(PYTHON) -m venv $(1)
	$(1)/bin/python -m pip install --quiet --constraint $(2) hatchling
	$(1)/bin/python -m pip install --quiet --constraint $(2) --no-build-isolation --editable '.[dev,docs]'
endef

setup: $(READY)

$(READY): pyproject.toml hatch_build.py constraints.txt
	$(call install,$(VENV),constraints.txt)
	touch $@

demo: $(READY)
	rm -rf demo
	$(BIN)/macer demo --out demo

# The site, from the pages that docs/scripts/generate_site.py writes; a warning, such as of a broken link,
# is an error. The last line refuses a page that would ask another host for anything.
docs: $(READY) $(if $(HAS_NPM),$(NPM)/.ready)
	$(if $(HAS_NPM),,@echo 'npm is not installed: the site lacks the part that certifies in the browser')
	$(BIN)/python docs/scripts/generate_site.py build/docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	$(BIN)/python docs/scripts/check_site.py site

# What runs the network in the browser, and axe-core for tests, at the versions of the lock file.
$(NPM)/.ready: docs/browser/package.json docs/browser/package-lock.json
	rm -rf $(NPM) && mkdir -p $(NPM)
	cp $^ $(NPM)
	npm ci --prefix $(NPM) --ignore-scripts --no-audit --no-fund --loglevel=error
	touch $@

# The pages in Chromium: that of `macer serve`, and that of the site, which is built first.
browser: docs
	MACER_SITE=site $(BIN)/pytest -n0 -rs tests/server/test_page.py tests/test_site.py

lint: $(READY)
	$(BIN)/ruff check src tests docs/scripts hatch_build.py
	$(BIN)/ruff format --check src tests docs/scripts hatch_build.py
	$(BIN)/mypy

# Each process takes half of the tests and steals from the other one at the end, so that most
# fixtures of a file or of the session are made once.
PYTEST := $(BIN)/pytest --numprocesses 2 --dist worksteal

# The quick tests, for each save; `make test` is what a change must pass.
check: lint
	$(PYTEST) -m 'not slow and not medium'

test: lint
	$(PYTEST)

# All seeded bugs, or with PART=K/N every N-th of them.
mutants: $(READY)
	PART=$(PART) $(BIN)/python tests/support/mutants.py

# The GPU's kernels on a CPU, by Triton's interpreter: the tests, then the bugs seeded into kernels.
kernels: $(READY) | $(TRITON)
	$(INTERPRETED) $(BIN)/pytest -q -n0 tests/kernels
	$(INTERPRETED) $(BIN)/python tests/support/mutants.py

# Installed beside its place and then renamed, so that an interrupted install is not taken for whole.
$(TRITON): | $(READY)
	mkdir -p $(@D)
	set -e; part=$$(mktemp -d $@.XXXXXX); trap 'rm -rf "$$part"' EXIT; trap 'exit 1' INT TERM HUP; \
	$(BIN)/pip install --quiet --no-deps --target "$$part" triton==$(TRITON_VERSION); \
	mv -T "$$part" $@ || test -d $@

bench: $(READY)
	$(BIN)/macer bench
	$(BIN)/macer bench --train

# constraints.txt anew: its comments and its torch, and the newest version of all else.
pins:
	rm -rf $(PINS) && mkdir $(PINS)
	grep '^torch==' constraints.txt > $(PINS)/torch.txt
	$(call install,$(PINS),$(PINS)/torch.txt)
	$(PINS)/bin/python -m pip freeze --all --exclude pip --exclude-editable > $(PINS)/freeze.txt
	{ grep '^#' constraints.txt; sed 's/+.*//' $(PINS)/freeze.txt; } > $(PINS)/constraints.txt
	mv $(PINS)/constraints.txt constraints.txt

# The tests with the oldest versions that pyproject.toml admits; of all else, those of constraints.txt.
oldest: $(OLDEST)/.ready
	$(OLDEST)/bin/pytest --numprocesses 2 -m 'not slow'

$(OLDEST)/.ready: pyproject.toml hatch_build.py constraints.txt constraints-oldest.txt
	rm -rf $(OLDEST) && mkdir $(OLDEST)
	sed -n 's/\(.*==\).*/^\1/p' constraints-oldest.txt | grep -vif - constraints.txt > $(OLDEST)/others.txt
	cat constraints-oldest.txt $(OLDEST)/others.txt > $(OLDEST)/constraints.txt
	$(call install,$(OLDEST),$(OLDEST)/constraints.txt)
	touch $@

clean:
	rm -rf $(VENV) $(OLDEST) $(PINS) demo site build/docs $(NPM) .pytest_cache .mypy_cache .ruff_cache .hypothesis
