# Two commands matter: `make demo` and `make test`. Everything is created on first use.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PYTEST_ARGS ?=
# More than a small machine has cores, for most tests wait; 0 runs all in one process, which a debugger needs.
WORKERS ?= 6
SEEDS ?= 2000
# The tests start hundreds of processes. Each would compile the package anew.
WITH_CACHES := PYTHONDONTWRITEBYTECODE=

.PHONY: demo test tck check bench bench-pull simulate serve docs lock clean help

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/'

$(STAMP): requirements.lock pyproject.toml
	@echo 'installing into $(VENV): a minute or two'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch $@

demo: $(STAMP) ## start a broker and its demo agents, run a chain, show it
	$(BIN)/a2a-handoff demo

test: $(STAMP) ## all tests
	$(WITH_CACHES) $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(PYTEST_ARGS)

tck: $(STAMP) ## TCK=folder: the compatibility kit of the A2A project against a broker; see docs/reference/conformance.md
	$(BIN)/python -m tests.conformance.suite $(TCK)

check: $(STAMP) ## lint, format, types, layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports

bench: $(STAMP) ## measure, print a table of ratios
	$(BIN)/python -m tests.benchmarks

bench-pull: $(STAMP) ## the same for agents that fetch their work; needs 11,000 open files
	$(BIN)/python -m tests.benchmarks.pulling

simulate: $(STAMP) ## SEEDS=n schedules of crashes and faults; every state of a handoff, with large casts
	$(BIN)/python -m tests.simulation --seeds $(SEEDS) --explore

serve: $(STAMP) ## run the broker with the example cards
	$(BIN)/a2a-handoff serve

docs: $(STAMP) ## write the generated tables of docs/reference anew
	$(BIN)/python -m tests.docs_tables --write

lock: $(STAMP) ## lock the dependencies anew (needs uv)
	$(BIN)/uv pip compile -q --universal --generate-hashes --no-emit-index-url --no-header --group dev pyproject.toml -o requirements.lock

clean: ## remove the environment and caches
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis
