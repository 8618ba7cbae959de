"""Options of the test suite."""

import os
import signal
from pathlib import Path

import hypothesis
import pytest

# How long an example takes depends on what else the machine does.
hypothesis.settings.register_profile("agentgym", deadline=None)
hypothesis.settings.load_profile("agentgym")

# Models this small take longer on several threads, and so do two test processes side by side.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A shell starts background jobs with interrupts ignored, and Python then leaves them so.
signal.signal(signal.SIGINT, signal.default_int_handler)

HANDED_CASES = Path(__file__).parent / "cases" / "handed.jsonl"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--cases",
        type=Path,
        default=HANDED_CASES,
        metavar="FILE",
        help="JSON lines with cases from practice, for tests/test_cases.py",
    )
