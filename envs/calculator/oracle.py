"""Plays every calculator task perfectly: one call per step, then the answer.

It reads the tool's results from the conversation, so it also proves that the env can be solved with
what the policy gets to see.
"""

import re
from collections.abc import Sequence

from agentgym.messages import Message, assistant
from agentgym.trajectory import Task

_REFERENCE = re.compile(r"#(\d+)")


def oracle(task: Task, messages: Sequence[Message]) -> Message:
    """The next assistant message.

    Args:
        task: a task of `CalculatorEnv`.
        messages: the conversation so far.
    """
    results = [message.content for message in messages if message.role == "tool"]
    steps = task["steps"]
    if len(results) < len(steps):
        return assistant("", ("calculator", {"expression": fill(steps[len(results)], results)}))
    return assistant(f"Answer: {results[-1]}")


def fill(step: str, results: Sequence[str]) -> str:
    """The step with results in place of `#1`, `#2`, ..."""
    return _REFERENCE.sub(lambda match: results[int(match.group(1)) - 1], step)
