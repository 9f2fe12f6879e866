# `make test`, `make demo` and `make bench` need Python 3.10 to 3.13 and make, nothing else:
# the first of them to run makes a virtual environment in .venv.

PYTHON ?= python3
VENV ?= .venv
RUN := $(VENV)/bin/python
OUT ?= out/toy_2d
BENCH ?=
DRAWS ?= 1e8
RUNS ?= 20
FIRST ?= 1
# xdist would start with the files that have most tests. tests/conftest.py knows what takes longest.
PARALLEL := --numprocesses 2 --dist loadfile --no-loadscope-reorder

.DEFAULT_GOAL := help
.PHONY: help demo bench docs test coverage test-oldest test-newest repeat faults soak mutants lint format clean

help:
	@echo "make demo    the 2-D study of the paper, with figures, into $(OUT)"
	@echo "make bench   speed and memory against alternatives, into out/benchmarks;"
	@echo "             BENCH=--quick for a look, BENCH=--list for the cases"
	@echo "make docs    the documentation site, into out/site"
	@echo "make test    the test suite"
	@echo "make coverage"
	@echo "             branch coverage of the library by its own tests; fails below 95 %"
	@echo "make test-oldest, make test-newest"
	@echo "             the suite on the oldest supported releases of all dependencies (Python"
	@echo "             3.10 to 3.12), and on the newest"
	@echo "make repeat  the suite RUNS=$(RUNS) times, each with other seeds and in another order (hours);"
	@echo "             the seeds count up from FIRST=$(FIRST)"
	@echo "make faults  kills, full disks, damaged and hostile files, signals: part of make test"
	@echo "make soak    DRAWS=$(DRAWS) draws against exact laws, memory over many calls, more random"
	@echo "             properties and more arguments of the density (hours)"
	@echo "make mutants small errors in a copy of the library, each of which a test must notice (hours)"
	@echo "make lint    lint, format and type check"
	@echo "make format  format the code"
	@echo "make clean   remove the virtual environments and all outputs"

$(VENV)/installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --quiet --disable-pip-version-check --upgrade "pip>=24"
	$(RUN) -m pip install --quiet --disable-pip-version-check --editable ".[dev]"
	@touch $@

demo: $(VENV)/installed
	$(RUN) -m examples.toy_2d --out $(OUT)

# A contender that cannot be installed is reported as absent; the next `make bench` tries again.
$(VENV)/contenders: $(VENV)/installed benchmarks/requirements.txt
	@if grep -v "^#" benchmarks/requirements.txt | \
		xargs -n 1 $(RUN) -m pip install --quiet --disable-pip-version-check; \
	then touch $@; else echo "benchmarks: some contenders could not be installed" >&2; fi

bench: $(VENV)/contenders
	$(RUN) -m benchmarks $(BENCH)

$(VENV)/docs: $(VENV)/installed
	$(RUN) -m pip install --quiet --disable-pip-version-check --editable ".[docs]"
	@touch $@

docs: $(VENV)/docs
	NO_MKDOCS_2_WARNING=1 $(RUN) -m mkdocs build --strict --quiet
	@echo "open out/site/index.html"

test: $(VENV)/installed
	$(RUN) -m pytest $(PARALLEL)

# Not part of `make test`: tracing takes a quarter of the time of these tests.
coverage: $(VENV)/installed
	$(RUN) -m pytest $(PARALLEL) --cov --cov-report term tests/library

OLDEST := .venv-oldest/bin/python
NEWEST := .venv-newest/bin/python
PIP := -m pip install --quiet --disable-pip-version-check

.venv-oldest/installed: pyproject.toml tests/oldest.txt
	$(PYTHON) -m venv .venv-oldest
	$(OLDEST) $(PIP) --upgrade "pip>=24"
	$(OLDEST) $(PIP) --constraint tests/oldest.txt --editable ".[test]"
	@touch $@

# Old releases call what is deprecated in newer releases of packages that have no bound here.
test-oldest: .venv-oldest/installed
	$(OLDEST) -m pytest $(PARALLEL) -W ignore::DeprecationWarning

# No file marks this environment as complete: each run looks for newer releases.
test-newest:
	$(PYTHON) -m venv .venv-newest
	$(NEWEST) $(PIP) --upgrade "pip>=24"
	$(NEWEST) $(PIP) --upgrade --upgrade-strategy eager --editable ".[test]"
	$(NEWEST) -m pytest $(PARALLEL)

repeat: $(VENV)/installed
	$(RUN) -m tests.repeat --runs $(RUNS) --first $(FIRST) $(PARALLEL)

faults: $(VENV)/installed
	$(RUN) -m pytest tests/examples/test_faults.py tests/examples/test_untrusted_files.py \
		tests/library/test_hostile_files.py tests/examples/paper/test_runner.py \
		tests/examples/vae/test_training.py tests/examples/vae/test_datasets.py

soak: $(VENV)/installed
	$(RUN) -m tests.soak --draws $(DRAWS)
	$(RUN) -m pytest --hypothesis-profile soak tests/library/test_properties*.py
	$(RUN) -m pytest -m slow tests/library/test_density_fuzz.py
	TF_ENABLE_ONEDNN_OPTS=0 $(RUN) -m tests.memory

mutants: $(VENV)/installed
	$(RUN) -m tests.mutants

lint: $(VENV)/installed
	$(RUN) -m ruff check
	$(RUN) -m ruff format --check
	$(RUN) -m pyright --pythonpath $(RUN)

format: $(VENV)/installed
	$(RUN) -m ruff check --fix
	$(RUN) -m ruff format

clean:
	rm -rf $(VENV) .venv-oldest .venv-newest out build dist *.egg-info .pytest_cache .ruff_cache
