# `make` prints the targets. Every target does its own set-up, once.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/ready
# Root leaves no caches in the user's tree.
SUDO := $(shell [ "$$(id -u)" = 0 ] || echo sudo -E env PYTHONDONTWRITEBYTECODE=1 NUMBA_CACHE_DIR=/var/cache/netsense-testbed/numba)
EXPERIMENT ?= experiments/quick.yaml
RESULTS ?= results/$(basename $(notdir $(EXPERIMENT)))
SCALE ?= full

.DEFAULT_GOAL := help
.PHONY: help setup experiment figures sweep reproduce bench study test test-unit lint browser engine base-image images doctor clean

help: ## print the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(READY): pyproject.toml constraints.txt testbed/setup.sh
	@PYTHON="$(PYTHON)" VENV="$(VENV)" sh testbed/setup.sh
	@touch $@

setup: $(READY) ## install packages, virtual environment and pinned dependencies (once)

experiment: $(READY) ## run EXPERIMENT (default experiments/quick.yaml) and draw its figures
	@$(SUDO) $(BIN)/testbed run $(EXPERIMENT)

figures: $(READY) ## write figures and report.html of RESULTS again (default results/quick); no root once set up
	@$(BIN)/testbed report $(RESULTS)

sweep: $(READY) ## sweep bandwidth and delay (experiments/sweep.yaml), with heat maps; resumable
	@$(SUDO) $(BIN)/testbed sweep experiments/sweep.yaml

reproduce: $(READY) ## hold the papers' claims against our own runs; SCALE=quick: half an hour, else three hours or more; resumable
	@$(SUDO) $(BIN)/testbed reproduce --scale $(SCALE)

bench: $(READY) ## measure emulator, controller, codecs, hooks and sweeps, into docs/benchmarks.md (20 minutes)
	@$(SUDO) $(BIN)/python -m tests.bench

study: $(READY) ## compare all schemes over several seeds, into docs/ (an hour and a quarter, resumable)
	@$(SUDO) $(BIN)/testbed run --resume experiments/repeats.yaml
	@$(SUDO) $(BIN)/testbed run --resume experiments/target.yaml
	@$(SUDO) $(BIN)/testbed run --resume experiments/baselines.yaml
	@$(BIN)/python -m analysis.compare results/target --out docs/time-to-accuracy.md
	@$(BIN)/python -m analysis.compare results/repeats --accuracy 0.65 --out docs/comparison.md
	@$(BIN)/python -m analysis.compare results/baselines --accuracy 0.65 --out docs/baselines.md

test: $(READY) lint browser engine test-unit ## lint, unit tests, then tests that boot networks, start containers and train (root)
	@$(SUDO) $(BIN)/pytest -p no:cacheprovider --rerun-show-tracebacks tests/emulation tests/fidelity tests/containers

browser:
	@sh tests/install_browser.sh

engine:
	@sh tests/install_engine.sh

test-unit: $(READY) ## unit tests only: no root once set up
	@$(BIN)/pytest -n $$(nproc) tests/unit

lint: $(READY) ## style and types
	@$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy

base-image: ## make the base image netsense-base by debootstrap, where no registry can be reached (root)
	@$(SUDO) sh docker/base.sh

images: $(READY) ## build the Docker images on BASE_IMAGE (default python:3.11-slim-bookworm, pulled)
	@VENV="$(VENV)" sh docker/build.sh

doctor: $(READY) ## tell what this machine can do
	@$(SUDO) $(BIN)/testbed doctor

clean: $(READY) ## tidy up after killed runs; results stay
	@$(SUDO) $(BIN)/testbed clean
