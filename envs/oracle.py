"""What an env may offer beside the contract: the words of a perfect policy."""

from typing import Protocol, runtime_checkable

from agentgym.messages import Message
from agentgym.trajectory import Task


@runtime_checkable
class HasOracle(Protocol):
    """An env that can say what a perfect policy would."""

    def oracle(self, task: Task, messages: list[Message]) -> Message:
        """The next assistant message of a conversation."""
        ...
