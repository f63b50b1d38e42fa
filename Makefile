# Each target sets itself up from a bare checkout: Python 3.11 or later, git, and PyPI.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
LOCK := requirements-dev.lock
TOOLS := .tools

.PHONY: demo test soak lint venv lock audit clean

venv: $(STAMP)

# The locked versions, each file by its hash. An archive with another hash stops it; where the lock
# cannot be had (another index, a Python without such wheels) it says so and goes on without.
$(STAMP): pyproject.toml $(LOCK)
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or later is needed: make PYTHON=python3.x")'
	$(PYTHON) -m venv $(VENV)
	@if $(BIN)/python -m pip install --quiet --require-hashes -r $(LOCK) 2>$(VENV)/pip.log; then :; \
	elif grep -q 'DO NOT MATCH THE HASHES' $(VENV)/pip.log; then cat $(VENV)/pip.log >&2; exit 1; \
	else grep ERROR $(VENV)/pip.log >&2; \
	  echo '$(LOCK) cannot be had here: installing what pyproject.toml allows, without hashes' >&2; \
	  $(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1' && \
	  $(BIN)/python -m pip install --quiet --editable . --group dev hatchling editables; fi
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
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
	TMPDIR=$(SCRATCH) STACK_TEST_FAULTS=all STACK_TEST_KILLS=60 STACK_TEST_SECONDS=300 \
	  STACK_TEST_ROUND_TRIPS=3000 STACK_PILE_FUZZ_SECONDS=3600 $(BIN)/python -m pytest --numprocesses 3 \
	  --timeout 14400 tests/test_faults.py tests/test_crowd.py tests/test_kills.py tests/flows/test_rebase_kills.py tests/cli/test_editing.py \
	  tests/test_rebase_fuzz.py tests/test_round_trip.py tests/test_hostile_files.py tests/test_pile_fuzz.py tests/flows/test_crowd_verify.py

lint: venv
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/codespell

# Pin again what pyproject.toml asks for, for every Python and platform that it allows.
COMPILE = $(TOOLS)/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
  --no-emit-index-url --custom-compile-command 'make lock' pyproject.toml

lock: $(TOOLS)/bin/uv
	$(COMPILE) --upgrade --group dev scripts/build.in -o $(LOCK)
	$(COMPILE) --constraint $(LOCK) -o requirements.lock

audit: $(TOOLS)/bin/uv
	$(TOOLS)/bin/pip-audit --strict --require-hashes --disable-pip -r $(LOCK)

$(TOOLS)/bin/uv:
	$(PYTHON) -m venv $(TOOLS)
	$(TOOLS)/bin/python -m pip install --quiet uv pip-audit

clean:
	rm -rf $(VENV) $(TOOLS) .stack .pytest_cache .mypy_cache .ruff_cache
