"""Options of the test suite."""

from pathlib import Path

import pytest

HANDED_CASES = Path(__file__).parent / "cases" / "handed.jsonl"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--cases",
        type=Path,
        default=HANDED_CASES,
        metavar="FILE",
        help="JSON lines with cases from practice, for tests/test_cases.py",
    )
