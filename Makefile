TWO_PROCESSES = -n 2 --dist worksteal
# Else every test process, and every program that a test starts, compiles the project anew.
export PYTHONDONTWRITEBYTECODE =

.PHONY: check fix lint types test test-slow test-all vllm-env vllm-test

check: lint types test-all  ## everything CI checks

fix:  ## let ruff mend what it can
	ruff check --fix .
	ruff format .

lint:
	ruff check .
	ruff format --check .

types:
	mypy
	mypy examples/*.py

test:  ## the fast tests
	pytest -m "not slow and not vllm" $(TWO_PROCESSES)

test-slow:
	pytest -m "slow and not vllm" $(TWO_PROCESSES)

test-all:
	pytest -m "not vllm" $(TWO_PROCESSES)

vllm-env:  ## .venv-vllm: vLLM's CPU build and this project, for machines without a GPU
	python3 .ci/vllm_env.py .venv-vllm

vllm-test:  ## the tests that need vLLM, in that environment
	.venv-vllm/bin/python -m pytest -m vllm -n 2 --dist loadfile --no-loadscope-reorder \
		$$(grep -rlF mark.vllm tests --include='test_*.py')
