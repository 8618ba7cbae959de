TWO_PROCESSES = -n 2 --dist loadfile

.PHONY: check fix lint types test test-slow test-all

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
