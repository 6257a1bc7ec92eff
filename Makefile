# The targets that users and checks rely on.  Each brings its own set-up and can be repeated.

PYTHON := .venv/bin/python

.PHONY: setup demo test test-long bench lint

setup:
	@sh tools/setup.sh

demo: setup
	@$(PYTHON) -m duckrow.tools.demo

lint: setup
	@.venv/bin/ruff check .
	@.venv/bin/ruff format --check .
	@.venv/bin/mypy
	@.venv/bin/mypy tests

# One process more than processors: tests of real processes wait for them now and then.  Spark's own tests share one
# session, so they are in one process.
test: lint
	@$(PYTHON) -m pytest -q -n $$(($$(nproc) + 1)) --dist worksteal --ignore tests/spark
	@$(PYTHON) -m pytest -q tests/spark

test-long: lint
	@DUCKROW_EXAMPLES=fresh $(PYTHON) -m pytest -q tests/core
	@$(PYTHON) -m pytest -q -m long --timeout 7200

bench: setup
	@$(PYTHON) -m duckrow.tools.bench $(ONLY)
