"""What a task asks and is tested with, read from its data."""

import json
from dataclasses import dataclass

from agentgym.envs.code.formats import assembled, problem_of
from agentgym.envs.code.grading import AssertTest, CallTest, StdioTest, read_tests
from agentgym.trajectory import Task

Test = StdioTest | CallTest | AssertTest
_TEXTS = ("starter", "preamble", "entry", "harness", "solution")
_MAX_SHOWN = 1000
USE_OBJECT = "use_object"
"""Function of the harness that makes an object and calls its methods."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Challenge:
    """A task's data, validated."""

    statement: str
    public: tuple[Test, ...]
    """Tests that are shown."""
    hidden: tuple[Test, ...]
    """Tests that decide."""
    starter: str = ""
    """Code to begin from."""
    preamble: str = ""
    """Source put before a program; see `formats.assembled`."""
    entry: str = ""
    """What a preamble ends in."""
    harness: str = ""
    """Source put behind a program, through which it is tested."""
    solution: str = ""
    """A right program; empty if there is none."""

    def whole(self, program: str) -> str:
        """A program as it is tested."""
        before = assembled(program, preamble=self.preamble, entry=self.entry)
        return f"{before}\n{self.harness}" if self.harness else before


def challenge_of(task: Task) -> Challenge:
    """The challenge of a bundled task, or of one in any format that `formats` knows.

    Raises:
        ConfigError: its data are those of no coding task.
    """
    data = task.data
    if not {"statement", "public_tests", "hidden_tests"} <= data.keys():
        data = problem_of(data).task_data()
    texts = {name: str(data[name]) for name in _TEXTS if data.get(name)}
    return Challenge(
        statement=str(data["statement"]),
        public=read_tests(data["public_tests"]),
        hidden=read_tests(data["hidden_tests"]),
        **texts,
    )


def example_of(test: Test) -> str:
    """A public test as the policy reads it."""
    if isinstance(test, StdioTest):
        text = f"input {json.dumps(test.stdin)} prints {json.dumps(test.expected)}"
    elif isinstance(test, AssertTest):
        text = "\n".join(filter(None, (test.setup, test.source)))
    elif test.function == USE_OBJECT:
        text = _use_of(test)
    else:
        named = [f"{name}={value!r}" for name, value in test.kwargs.items()]
        given = ", ".join([*map(repr, test.args), *named])
        text = f"{test.function}({given}) returns {test.expected!r}"
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."


def _use_of(test: CallTest) -> str:
    """Calls one by one, each with what it returns."""
    entry, arguments, calls = test.args
    steps = [f"it = {entry}({', '.join(map(repr, arguments))})"]
    for (method, *rest), expected in zip(calls, test.expected, strict=True):
        steps.append(f"it.{method}({', '.join(map(repr, rest))}) returns {expected!r}")
    return "; ".join(steps)
