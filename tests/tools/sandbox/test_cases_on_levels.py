"""The cases of the area `sandbox` on the levels below the best one, which `test_cases` runs.

Left out are those of which only the runner decides, the same one behind every wall: what it makes
of values and output, and the clock. The contract of all back ends holds some of these as well.
"""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from local_kit import launchers

TESTS = Path(__file__).parents[2]
CASES = TESTS / "cases"


def _load(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


runner = _load("agentgym_cases_runner", TESTS / "test_cases.py")
ANYWHERE = frozenset(
    {"bytes", "exit", "flood", "noprint", "stdin", "surrogates", "timeout", "unicode"}
)
"""Kinds of cases."""


def _kind(case: dict[str, Any]) -> str:
    return str(case["note"]).removeprefix("kind=").partition(";")[0]


CHOSEN = [
    case
    for name in ("handed.jsonl", "own_sandbox.jsonl")
    for case in runner._read(CASES / name)
    if case["area"] == "sandbox" and (name == "handed.jsonl" or _kind(case) not in ANYWHERE)
]


@pytest.mark.slow
@pytest.mark.parametrize("level", ["landlock"])
@pytest.mark.parametrize("case", CHOSEN, ids=[case["id"] for case in CHOSEN])
def test_case(case: dict[str, Any], level: str) -> None:
    """What a program is told and leaves behind does not depend on the wall around it."""
    if level not in launchers():
        pytest.skip(f"no sandbox of level {level!r} starts on this machine")
    area = runner._load("area_sandbox")
    given = runner.inputs.Inputs(case["input"])
    actual = runner.observe(
        lambda inputs: area.run_at(inputs, level),
        given,
        traces_memory="_mb" in str(case["expected"]),
    )

    assert actual["exception"] or not runner.inputs.unread(given)
    assert not runner.compare.differences(case["expected"], actual)
