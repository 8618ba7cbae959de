TWO_PROCESSES = -n 2 --dist worksteal
# Else every test process, and every program that a test starts, compiles the project anew.
export PYTHONDONTWRITEBYTECODE =

.PHONY: check fix lint types test test-slow test-all vllm-env vllm-test vllm-test-all

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

VLLM_TESTS = $$(grep -rlF mark.vllm tests --include='test_*.py')
IN_VLLM_ENV = .venv-vllm/bin/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

vllm-test:  ## the tests that need vLLM, in that environment
	$(IN_VLLM_ENV) -m "vllm and not slow" $(VLLM_TESTS)

vllm-test-all:  ## with those of two servers, which take three minutes more
	$(IN_VLLM_ENV) -m vllm $(VLLM_TESTS)
