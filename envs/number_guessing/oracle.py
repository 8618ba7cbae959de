"""Halves the range at every guess, from nothing but what was said and heard."""

from collections.abc import Sequence
from itertools import pairwise

from agentgym.messages import Message, assistant
from agentgym.trajectory import Task

_FORM = "Answer: "


def oracle(task: Task, messages: Sequence[Message]) -> Message:
    """The next guess: the middle of what its earlier guesses have left."""
    low, high = task["low"], task["high"]
    for said, heard in pairwise(messages):
        if said.role == "assistant" and heard.content.startswith("Higher"):
            low = int(said.content.removeprefix(_FORM)) + 1
        elif said.role == "assistant" and heard.content.startswith("Lower"):
            high = int(said.content.removeprefix(_FORM)) - 1
    return assistant(f"{_FORM}{(low + high) // 2}")
