"""The space of what envs and policies say.

Gymnasium's own `Text` space has a fixed alphabet and a largest length, which ordinary text leaves.
"""

from typing import Any

from gymnasium import Space

from agentgym.messages import Message

_SAMPLE_ALPHABET = "abc xyz 0123456789 +-*/()=.,:;?!%\n\"'{}<>äñ→字"
_MAX_SAMPLE_CHARACTERS = 32


class MessageSpace(Space[Any]):
    """Contains every `str`, every `Message` and every list of messages."""

    def contains(self, x: Any) -> bool:
        if isinstance(x, list | tuple):
            return all(isinstance(message, Message) for message in x)
        return isinstance(x, str | Message)

    def sample(self, mask: Any | None = None, probability: Any | None = None) -> str:
        """Random text, an action as well as an observation; masks are ignored."""
        length = int(self.np_random.integers(1, _MAX_SAMPLE_CHARACTERS + 1))
        return "".join(self.np_random.choice(list(_SAMPLE_ALPHABET), size=length))

    @property
    def is_np_flattenable(self) -> bool:
        return False

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MessageSpace)

    def __hash__(self) -> int:
        return hash(MessageSpace)

    def __repr__(self) -> str:
        return "MessageSpace()"
