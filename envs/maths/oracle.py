"""Knows the answer: proves that what is asked for is what earns everything."""

from collections.abc import Sequence

from agentgym.envs.maths.grading import answer_of
from agentgym.messages import Message, assistant


def oracle(answer: str, _: Sequence[Message]) -> Message:
    """The answer in the asked form."""
    return assistant(f"Answer: {answer_of(answer)}")
