"""What a tool may know of the trajectory that calls it."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from agentgym.tools.sandbox.lazy import NO_SANDBOX, LazySandbox

CountTokens = Callable[[str], int]


def approximate_tokens(text: str) -> int:
    """Four characters to a token, for callers without a tokenizer."""
    return -(-len(text) // 4)


@dataclass(slots=True, kw_only=True)
class ToolContext:
    """A tool gets it by having a parameter of this type; the model never sees that parameter."""

    rng: random.Random = field(default_factory=random.Random)
    """The call's own generator, derived from the trajectory's seed."""
    state: dict[str, Any] = field(default_factory=dict)
    """Shared by the calls of one trajectory and by no other."""
    count_tokens: CountTokens = approximate_tokens
    """Measures a tool's output limit."""
    sandbox: LazySandbox = NO_SANDBOX
    """Where the trajectory's code runs: `await context.sandbox.get()`."""

    def for_call(self) -> "ToolContext":
        """The same state with a generator of its own, so that parallel calls stay reproducible."""
        return replace(self, rng=random.Random(self.rng.getrandbits(64)))
