# Each target sets itself up from a bare checkout: Python 3.11 or later, git, and PyPI.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test soak lint venv clean

venv: $(STAMP)

$(STAMP): pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or later is needed: make PYTHON=python3.x")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip --quiet install --upgrade 'pip>=25.1'
	$(BIN)/python -m pip --quiet install --editable . --group dev
	touch $(STAMP)

# The main job, from nothing: fetch vLLM's source, apply, build every prefix, measure, report.
demo: venv
	$(BIN)/stack apply --upstream vllm@0.20.1
	$(BIN)/stack apply --upstream vllm@0.29.0
	$(BIN)/stack build --profile cpu-smoke --trust
	$(BIN)/stack verify --profile cpu-smoke

# Every test writes small files durably: in memory where there is room, else on disk.
SCRATCH := $(shell [ -w /dev/shm ] && [ $$(df --output=avail /dev/shm | tail -1) -gt 6000000 ] && echo /dev/shm || echo $${TMPDIR:-/tmp})

test: venv
	TMPDIR=$(SCRATCH) $(BIN)/python -m pytest --numprocesses 3 --dist loadgroup

# The same harnesses for hours: every fault at every point, more kills, more rounds.
soak: venv
	TMPDIR=$(SCRATCH) STACK_TEST_FAULTS=all STACK_TEST_KILLS=60 STACK_TEST_SECONDS=300 $(BIN)/python -m pytest --numprocesses 3 \
	  --timeout 14400 tests/test_faults.py tests/test_crowd.py tests/test_kills.py tests/flows/test_rebase_kills.py tests/test_rebase_fuzz.py

lint: venv
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/codespell

clean:
	rm -rf $(VENV) .stack .pytest_cache .mypy_cache .ruff_cache
