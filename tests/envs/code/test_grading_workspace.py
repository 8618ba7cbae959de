"""Whole workspaces under test, and the form in which tests are handed over."""

from typing import Any

import pytest

from agentgym.envs.code.grading import (
    AssertTest,
    CallTest,
    StdioTest,
    grade_workspace,
    read_tests,
)
from agentgym.errors import ConfigError
from agentgym.tools.sandbox.base import SandboxProvider

pytestmark = pytest.mark.asyncio(loop_scope="module")

SQUARE = "def f(x):\n    return x * x\n"


async def test_a_workspace_is_graded_by_the_true_tests(provider: SandboxProvider):
    """Whatever the agent has put in their place."""
    tests = {"tests/test_a.py": "from pkg.a import f\ndef test_a(): assert f(2) == 4"}
    files = {
        "pkg/__init__.py": "",
        "pkg/a.py": SQUARE,
        "data.bin": b"\xff\x00",
        "tests/test_a.py": "assert False",
    }

    assert (await grade_workspace(provider, files, tests)).all_passed
    wrong = {**files, "pkg/a.py": "def f(x): return 0", "tests/test_a.py": "def test_a(): pass"}
    assert (await grade_workspace(provider, wrong, tests)).fraction == 0.0
    reads = {**files, "pkg/a.py": "import os\ndef f(x): return os.path.getsize('data.bin') * x"}
    assert (await grade_workspace(provider, reads, tests)).all_passed


async def test_a_workspace_that_cannot_be_rewritten_is_played(provider: SandboxProvider):
    """Its functions are imported where the files are, and only there."""
    played = "def test():\n    while 1:\n        assert g(3) == 9\n        break"
    tests = {"test_a.py": f"from a import f as g\n{played}"}

    assert (await grade_workspace(provider, {"a.py": SQUARE}, tests)).all_passed
    assert not (await grade_workspace(provider, {"a.py": "f = abs"}, tests)).all_passed


@pytest.mark.parametrize("path", ["/etc/a.py", "../a.py", "a/../../b.py", ""])
async def test_files_outside_a_workspace_are_refused(provider: SandboxProvider, path: str):
    """They come from an agent."""
    with pytest.raises(ConfigError, match="outside the workspace"):
        await grade_workspace(provider, {path: ""}, {"test_a.py": "from a import f\nassert f(1)"})


async def test_tests_survive_json():
    """They are data of a task."""
    tests = (
        StdioTest(stdin="1", expected="2", compare="float"),
        CallTest(function="f", args=(1, [2]), expected={"a": None}, tol=0.1),
        AssertTest(source="assert f(1)", functions=("f",)),
    )

    assert read_tests([test.model_dump(mode="json") for test in tests]) == tests


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ([{"kind": "stdio"}], "0.stdio.expected: Field required"),
        ([{"kind": "other"}], "0"),
        ([{"kind": "stdio", "expected": "1", "stdout": "1"}], "stdout"),
        ({"a": 1}, "tests"),
    ],
)
async def test_tests_of_another_form_are_refused(row: Any, words: str):
    """By the name of the field."""
    with pytest.raises(ConfigError, match=words):
        read_tests(row)
