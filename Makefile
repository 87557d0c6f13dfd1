# Everything a user or a developer runs. Each target makes .venv itself (.ci/venv) and starts at once when it is there.
#   make demo DEMO_ARGS=--once        make test TEST_ARGS="tests/assertions -x"        make test PYTHON=/usr/bin/python3.12
.DEFAULT_GOAL := help
.PHONY: help venv demo test soak check bench format release

# Else each of the hundred processes of a run compiles the package and the tests again, where a machine says so.
export PYTHONDONTWRITEBYTECODE :=

RUN := .venv/bin
DEMO_ARGS ?=
RELEASE_ARGS ?=
BY_FILE := --dist loadgroup --durations 40 --durations-min 1
# Three on two cores: while one waits for a process or a clock, another works.
TEST_ARGS ?= -n 3 $(BY_FILE)
SOAK ?= 1
SOAK_ARGS ?= -n 2 $(BY_FILE) --timeout 3600

help:  ## Show the targets
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1  \t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 18

venv:  ## Make or update .venv
	@PYTHON="$(PYTHON)" sh .ci/venv

demo:  ## Watch the whole loop on real digits (DEMO_ARGS=--once ends with a verdict)
	@PYTHON="$(PYTHON)" sh .ci/venv torch,sklearn,gx
	@$(RUN)/outrider demo $(DEMO_ARGS)

test: venv  ## Run the tests (TEST_ARGS replaces the arguments of pytest)
	@$(RUN)/python -m pytest $(TEST_ARGS)

soak: venv  ## Run the tests with full counts and promises in seconds: an hour of a machine that does nothing else (SOAK=full: a million malformed requests)
	@OUTRIDER_SOAK=$(SOAK) $(RUN)/python -m pytest $(SOAK_ARGS)

check: venv  ## Check format, lint, types, the order of imports and the words
	@$(RUN)/ruff format --check .
	@$(RUN)/ruff check .
	@$(RUN)/mypy outrider tests benchmarks
	@$(RUN)/python -m pytest -q -n 0 tests/test_import_order.py tests/test_words.py

bench: venv  ## Run every benchmark; one JSON line per figure
	@$(RUN)/python -m benchmarks

release: venv  ## Build sdist, wheels, SBOM and checksums of the last commit into dist/
	@$(RUN)/python deploy/release.py $(RELEASE_ARGS)

format: venv  ## Format and fix what can be fixed
	@$(RUN)/ruff check --fix --quiet . || true
	@$(RUN)/ruff format .
