# One place per chore; .ci/run and the pre-commit hook call the same targets.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
export PYTHON

BIN := .venv/bin
# No test or demo reaches for a model hub. Threads that wait sleep instead of spinning: several processes share the cores.
# Compiled files are kept: collecting the tests takes half the time with them.
unexport PYTHONDONTWRITEBYTECODE
OFFLINE := HF_HUB_OFFLINE=1 OMP_WAIT_POLICY=passive TOKENIZERS_PARALLELISM=false

.DEFAULT_GOAL := help
.PHONY: help setup models data check fix test test-all test-nightly demo docs bench clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## build .venv (idempotent; 1 to 5 minutes the first time)
	@scripts/setup_env.sh

models: setup ## fetch the small real models into .models and make the tiny policy
	@$(BIN)/python examples/assets/fetch_models.py --out .models
	@test -f .models/tiny-arith/config.json || $(BIN)/python examples/arithmetic/make_tiny_policy.py --out .models/tiny-arith

data: setup ## generate the demo's data into .data
	@test -f .data/demo/train.parquet || $(BIN)/python data_preprocess/arithmetic.py --out .data/demo --train 512 --test 48 --seed 0
	@test -f .data/arithmetic/train.parquet || $(BIN)/python examples/arithmetic/make_data.py --out .data/arithmetic

check: setup ## lint, formatting, wrapped pages, types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python scripts/wrap_prose.py --check
	$(BIN)/pyright

fix: setup ## repair what ruff can repair
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

test: setup ## the fast tests, in a process per core
	$(OFFLINE) $(BIN)/python -m pytest --ignore tests/slow -m "not nightly" --numprocesses auto --maxprocesses 8 --dist loadfile

test-all: models test ## all tests; real engines, Ray and small real models included
	$(OFFLINE) scripts/test_slow.sh "slow and not nightly"

test-nightly: models ## the long forms, mutants and stalls, about an hour: on the day of a release
	$(OFFLINE) $(BIN)/python scripts/nightly.py

demo: models data ## see rmrl work, from nothing, on this computer
	@$(OFFLINE) bash examples/demo/run.sh

docs: ## build the documentation site into build/site, with strict links
	@scripts/build_docs.sh

bench: models ## measure, and rewrite benchmarks/results
	$(OFFLINE) $(BIN)/python benchmarks/scoring.py
	$(OFFLINE) $(BIN)/python benchmarks/judge_agreement.py
	$(OFFLINE) $(BIN)/python benchmarks/residency.py
	$(OFFLINE) $(BIN)/python -m benchmarks.report_page
	$(OFFLINE) $(BIN)/python -m benchmarks.rewards
	$(OFFLINE) $(BIN)/python -m benchmarks.training
	$(OFFLINE) $(BIN)/python -m benchmarks.attacks

clean: ## remove caches, models, data and runs; .venv stays
	rm -rf .pytest_cache .ruff_cache build dist outputs runs .models .data .demo
	find rmrl tests -name __pycache__ -type d -prune -exec rm -rf {} +
