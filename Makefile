# `make demo` and `make test` need Python 3.11+ and make; everything else they set up by themselves.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# The suite runs far from UTC, so that a forgotten time zone shows.
TEST_ENV := TZ=Australia/Brisbane
CHAOS_SECONDS ?= 1800
CHAOS_DAYS ?= 2000

.PHONY: help demo test check chaos fuzz format bench clean

help:  ## what can be made
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/'

$(STAMP): pyproject.toml constraints.txt scripts/setup.sh scripts/has_java.py
	@PYTHON="$(PYTHON)" VENV="$(VENV)" sh scripts/setup.sh
	@touch $(STAMP)

demo: $(STAMP)  ## build the beacon demo in ./demo and walk through it
	@$(BIN)/python scripts/demo.py demo

check: $(STAMP)  ## format, lint, types, layers, fast tests
	$(BIN)/ruff format --check src tests benchmarks scripts examples
	$(BIN)/ruff check src tests benchmarks scripts examples
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(TEST_ENV) $(BIN)/python scripts/test.py unit

test: check  ## everything: real PostgreSQL, Spark and Delta
	$(TEST_ENV) $(BIN)/python scripts/test.py integration spark crash acceptance

chaos: $(STAMP)  ## CHAOS_DAYS simulated, then real processes for CHAOS_SECONDS, killed, stopped and cut off, then the same with Spark; PENSTOCK_SEED tells a story again
	$(TEST_ENV) PENSTOCK_DAYS=$(CHAOS_DAYS) $(BIN)/python -m pytest -q -s tests/integration/test_simulation.py -k 'quiet or control'
	$(TEST_ENV) PENSTOCK_CHAOS_SECONDS=$(CHAOS_SECONDS) $(BIN)/python -m pytest -q -s tests/crash/test_chaos.py
	$(TEST_ENV) PENSTOCK_CHAOS_SECONDS=$(CHAOS_SECONDS) $(BIN)/python -m pytest -q -s tests/crash/test_chaos_spark.py

fuzz: $(STAMP)  ## many more examples in every test that draws its own
	$(TEST_ENV) PENSTOCK_FUZZ=1 PYTHONPATH=tests/support $(BIN)/python -m pytest -q -p fuzzing --hypothesis-profile=fuzz \
		--timeout=0 $$(grep -rl --include='*.py' -e hypothesis -e FUZZ tests/unit tests/integration tests/spark tests/acceptance)

format: $(STAMP)  ## put the code in shape
	$(BIN)/ruff format src tests benchmarks scripts examples
	$(BIN)/ruff check --fix src tests benchmarks scripts examples

bench: $(STAMP)  ## measure; each script prints a table and writes benchmarks/results/*.json
	@mkdir -p benchmarks/results
	@for b in planner parts claims wakeup scheduler cold idle_up projects interval backfill late rewrites commits batching updates; do $(BIN)/python benchmarks/$$b.py --json benchmarks/results/$$b.json || exit 1; done

clean:  ## remove what the other targets made
	rm -rf $(VENV) demo benchmarks/results .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
