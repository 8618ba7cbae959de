"""How an update of weights ends, in words that both sides of it know; without torch."""

from collections.abc import Iterable
from typing import NamedTuple

from agentgym.errors import ConfigError

REFUSED = "weights refused"
"""How every message begins that says that the weights are not those of the model."""
_MAX_NAMED = 8


class WeightsRefusedError(ConfigError):
    """The weights are not those of the served model; it goes on serving what it had."""

    def __init__(self, problem: str, names: Iterable[str]) -> None:
        ordered = sorted(names)
        more = f" and {len(ordered) - _MAX_NAMED} more" if len(ordered) > _MAX_NAMED else ""
        super().__init__(f"{REFUSED}: {problem}: {', '.join(ordered[:_MAX_NAMED])}{more}")


class Loaded(NamedTuple):
    """What an update did."""

    tensors: int
    changed: int
    """Of `tensors`, those whose values are not what they were."""
