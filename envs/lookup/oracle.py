"""Looks up what the tool said last, as often as was asked; it never reads the table."""

from collections.abc import Sequence

from agentgym.messages import Message, assistant
from agentgym.trajectory import Task


def oracle(task: Task, messages: Sequence[Message]) -> Message:
    """The next look-up, or the answer."""
    results = [message.content for message in messages if message.role == "tool"]
    newest = results[-1] if results else task["start"]
    if len(results) < task["hops"]:
        return assistant("", ("lookup", {"key": newest}))
    return assistant(f"Answer: {newest}")
