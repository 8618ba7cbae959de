"""Options of the test suite."""

import gc
import os
import signal
from pathlib import Path

import hypothesis
import pytest

# How long an example takes depends on what else the machine does. They differ from run to run.
hypothesis.settings.register_profile("agentgym", deadline=None, max_examples=50)
hypothesis.settings.load_profile("agentgym")

# Models this small take longer on several threads, and so do two test processes side by side.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A shell starts background jobs with interrupts ignored, and Python then leaves them so.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Nearly all that collecting tests makes is kept: there is nothing to look for.
gc.disable()

BEGUN_FIRST = (
    "test_real_model.py",
    "test_attacks.py",
    "test_mutations.py",
    "test_distributed.py",
    "test_two_servers.py",
    "test_train_faults.py",
)
"""The longest ones, and those that share what takes long to make: it is made in one process."""

HANDED_CASES = Path(__file__).parent / "cases" / "handed.jsonl"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--cases",
        type=Path,
        default=HANDED_CASES,
        metavar="FILE",
        help="JSON lines with cases from practice, for tests/test_cases.py",
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.name not in BEGUN_FIRST)


def pytest_collection_finish() -> None:
    """What was imported stays: no test's own collection of garbage need look through it again."""
    gc.collect()
    gc.freeze()
    gc.enable()
