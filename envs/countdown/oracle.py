"""Tries the expression that the target was made from, then gives it as the answer."""

from collections.abc import Sequence

from agentgym.messages import Message, assistant
from agentgym.trajectory import Task


def oracle(task: Task, messages: Sequence[Message]) -> Message:
    """The next call, or the answer."""
    solution: str = task["solution"]
    if messages[-1].role != "tool":
        return assistant("", ("calculator", {"expression": solution}))
    assert messages[-1].content == str(task["target"]), "the solution reaches the target"
    return assistant(f"Answer: {solution}")
