# The commands people use. Each sets up what it needs; none needs another to be run first.
#   make demo            the main job end to end on this machine, results in var/demo
#   make serve           the portal on the demo's result, http://127.0.0.1:8000
#   make test            lint, types, layer rule and all quick tests
# Further promises: worker, bench, bench-uplift, bench-metering, lint, types, test-slow, services-test, lock, clean.

SHELL := /bin/bash
VENV ?= .venv
BIN := $(VENV)/bin
SYSTEM_PYTHON ?= $(firstword $(shell command -v python3.11 python3.12 python3.13 python3 2>/dev/null))
export IGNITION_HOME ?= $(CURDIR)/var
export PYTHONPATH := $(CURDIR):$(CURDIR)/platform
PORT ?= 8000
# Which tests make test runs: all quick ones.
MARKS ?= not slow and not services and not bench and not gpu
# Two test processes where there are two cores; tests/side_by_side.py says what each may run.
PYTEST = $(BIN)/python -m pytest $(if $(filter-out 1,$(shell nproc)),-n 2)

.PHONY: demo serve worker test test-slow services-test bench bench-uplift bench-metering lint types models lock clean setup setup-dev

demo: setup models
	$(BIN)/python manage.py demo

serve: setup
	$(BIN)/python manage.py serve --port $(PORT)

worker: setup
	$(BIN)/python -m celery -A portal worker --loglevel INFO

test: setup-dev models lint types
	$(PYTEST) -m "$(MARKS)"

test-slow: setup-dev models
	$(PYTEST) -m "slow"

services-test: setup-dev models
	tools/system_packages.sh services
	tools/with_services.sh $(BIN)/python -m pytest -m "services"

bench-uplift: setup-dev
	$(BIN)/python -m pytest -m "bench" -s tests/benchmarks/test_uplift_statistics.py

bench-metering: setup-dev
	tools/system_packages.sh services
	$(BIN)/python -m pytest -m "bench" -s tests/benchmarks/test_metering_throughput.py

bench: setup-dev models
	$(BIN)/python -m pytest -m "bench" -s

lint: setup-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: setup-dev
	$(BIN)/python -m mypy

models: setup
	$(BIN)/python -m kernelgen models --cache $(IGNITION_HOME)/cache/models

setup: $(VENV)/.demo-ready
setup-dev: $(VENV)/.dev-ready

$(BIN)/python:
	@$(SYSTEM_PYTHON) -c 'import sys; v = sys.version_info[:2]; v >= (3, 11) or sys.exit(f"Python {v[0]}.{v[1]} found, 3.11 or newer wanted: set SYSTEM_PYTHON")'
	$(SYSTEM_PYTHON) -m venv $(VENV)

$(VENV)/.demo-ready: requirements/demo.txt pyproject.toml tools/system_packages.sh | $(BIN)/python
	tools/system_packages.sh demo
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/demo.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/.dev-ready: requirements/dev.txt $(VENV)/.demo-ready
	tools/system_packages.sh test
	tools/system_packages.sh cross
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	@touch $@

LOCK := $(BIN)/pip-compile --quiet --generate-hashes --allow-unsafe --strip-extras --no-header --no-annotate \
	--no-emit-index-url --no-emit-find-links --no-emit-trusted-host --extra openvino --extra build
lock: setup
	$(BIN)/python -m pip install --quiet 'pip-tools>=7.5'
	$(LOCK) --output-file requirements/demo.txt pyproject.toml
	$(LOCK) --extra redis --extra plots --extra dev -c requirements/demo.txt --output-file requirements/dev.txt pyproject.toml

clean:
	rm -rf $(VENV) var .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
