# Two commands on a fresh machine: `make demo` and `make test`. Both set everything up first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# A file of tests stays in one process, which makes what its tests share once.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/pytest --numprocesses auto --dist loadfile --no-loadscope-reorder

.PHONY: demo test quick lint bench docs release-check test-lowest fuzz clean

demo: $(READY)
	$(BIN)/fultr demo

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: lint
	$(PYTEST) --cov --cov-report=term

quick: lint
	$(PYTEST) -m "not slow and not statistical and not browser"

bench: $(READY)
	OMP_NUM_THREADS=1 POLARS_MAX_THREADS=1 $(BIN)/python -m benchmarks

# The documentation, in site/: warnings are errors, links are checked, and nothing is asked of another host.
docs: $(VENV)/.docs
	$(BIN)/python -m tools.build_site

# What a release is checked by: both packages, installed outside this folder, are tried.
release-check: $(VENV)/.release
	$(BIN)/python -m tools.release_check

# The fast tests with the lowest versions that pyproject.toml allows.
test-lowest:
	$(PYTHON) -m tools.lowest_versions

$(VENV)/.docs $(VENV)/.release: $(VENV)/.%: $(READY)
	PIP_CONSTRAINT=constraints.txt $(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$*]'
	touch $@

# The environment is made again only when what it is made of has changed. PIP_CONSTRAINT holds for the build
# environment too, so that every package has the version it was tested with.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "fultr needs Python 3.11 or later; set PYTHON=")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	PIP_CONSTRAINT=constraints.txt $(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $(READY)

# Random files for every format that is read; what is counted and what failed is added to .fuzz.json.
FUZZ_MINUTES ?= 60
fuzz: $(READY)
	OMP_NUM_THREADS=1 POLARS_MAX_THREADS=1 $(BIN)/python -W ignore -m tests.fuzz --minutes $(FUZZ_MINUTES)

clean:
	rm -rf $(VENV) site .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache .coverage .fuzz.json
