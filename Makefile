# `make` alone prints the targets below; the text after `##` is their help.

SHELL := bash
.DEFAULT_GOAL := help
BIN := .venv/bin
ARGS ?=
# Without kept bytecode, each of the many processes of a test run compiles its packages again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help
help:
	@echo "Lakestate: usage is 'make TARGET'"
	@echo
	@awk 'BEGIN { FS = ":.*## " } /^[a-z-]+:.*## / { printf "  %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: setup
setup: ## Create .venv with the pinned packages and check for Java 17+ (at once when done before)
	@scripts/require-java
	@scripts/setup

.PHONY: demo
demo: setup ## Run a pipeline on local Spark, kill it, restart it, and show that nothing is lost
	@$(BIN)/python examples/demo.py $(ARGS)

# No Spark and no server. Tests that grow slow show up at the end: mark them `slow`.
.PHONY: check
check: lint ## Lint, and the quick unit tests and doctests: 90 seconds, for the minute-to-minute loop
	@$(BIN)/pytest -q -n 2 --dist loadfile -m "not slow" --durations=5 --durations-min=1.5 tests/unit src $(ARGS)

# Jars that cannot be had do not fail it: tests that need them are skipped, and say why at the end.
.PHONY: test
test: setup ## Run the tests and doctests: 17 minutes; ARGS="-k fence" chooses some
	@scripts/fetch-jars || true
	@scripts/test $(ARGS)

.PHONY: test-full
test-full: setup ## Run the longer tests, which CI runs after `make test`
	@scripts/fetch-jars || true
	@scripts/test --full $(ARGS)

.PHONY: lint
lint: setup ## Check format, style, types and layers
	@$(MAKE) --no-print-directory --keep-going lint-format lint-style lint-types lint-layers

# The four parts of `lint`; pre-commit runs the same ones.
.PHONY: lint-format lint-style lint-types lint-layers
lint-format:
	@$(BIN)/ruff format --check --quiet . || { echo "Formatting differs: run 'make format'"; exit 1; }
lint-style:
	@$(BIN)/ruff check --quiet --output-format=concise .
lint-types:
	@$(BIN)/mypy
lint-layers:
	@$(BIN)/lint-imports --no-logo

.PHONY: format
format: setup ## Format the code and apply the safe style fixes
	@$(BIN)/ruff check --fix --quiet . || true
	@$(BIN)/ruff format .

.PHONY: bench
bench: setup ## Run all benchmarks: 55 minutes; ONLY="spark keyed" chooses some
	@scripts/fetch-jars || true
	@scripts/flink-env || true
	@scripts/tables-env || true
	@scripts/fetch-jars s3 || true
	@$(BIN)/python -m benchmarks $(ONLY)

.PHONY: bench-quick
bench-quick: setup ## Run the most important benchmarks with small sizes: 5 minutes; ONLY chooses some
	@scripts/fetch-jars || true
	@$(BIN)/python -m benchmarks --quick $(ONLY)

# pytest-timeout is off here: a soak test bounds itself by SOAK_MINUTES.
.PHONY: soak
soak: export SOAK_MINUTES := $(or $(SOAK_MINUTES),10)
soak: setup ## Run the long tests, each SOAK_MINUTES=10; SEEDS=1,2 repeats seeds; SEEDS=20000 or forever only simulates
	@case "$(SEEDS)" in \
	  ''|*,*) $(BIN)/pytest --soak -m soak --timeout=0 $(ARGS) ;; \
	  forever) $(BIN)/python -m lakestate.testing.simulation soak $(ARGS) ;; \
	  *) $(BIN)/python -m lakestate.testing.simulation soak --seeds $(SEEDS) $(ARGS) ;; \
	esac

# Not part of CI: it takes minutes for each version.
.PHONY: matrix
matrix: setup ## Run pipelines on every supported version of Spark; ONLY="3.5 4.0" chooses some
	@scripts/matrix $(ONLY)

.PHONY: proto
proto: setup ## Regenerate the Protobuf classes and stubs from proto/
	@$(BIN)/python scripts/generate-proto

.PHONY: clean
clean: ## Remove .venv, caches and built files
	@rm -rf .venv .venv-flink .venv-matrix .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@rm -rf dist build spark-warehouse metastore_db derby.log benchmarks/results/quick benchmarks/results/logs
	@find src tests benchmarks examples scripts -type d -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true
