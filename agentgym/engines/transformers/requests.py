"""One turn on its way through an engine.

A request belongs to the worker thread; only its `Reply` may be touched from elsewhere. Its random
numbers come from its own seed, so that no other request can change what it samples.
"""

import math
import random
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from agentgym.engines.base import FinishReason, Generation, Sampling
from agentgym.engines.grammar import Guide
from agentgym.engines.stops import StopStrings
from agentgym.engines.worker import Reply
from agentgym.errors import EngineError

Ids = NDArray[np.int64]


@dataclass(slots=True, eq=False)
class Request:
    """A turn to sample, and what has been sampled of it."""

    prompt: Ids
    """[T] token ids."""
    sampling: Sampling
    session: str
    limit: int
    """Most tokens to sample: budget and context length together."""
    reply: Reply[Generation]
    watched: StopStrings | None = None
    """Finds the request's stop strings, if it has some."""
    guide: Guide | None = None
    """What of the vocabulary may come next, if the turn is constrained."""
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    outcome: Generation | EngineError | None = None
    """Set when the turn is over."""
    _random: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self._random = random.Random(self.sampling.seed)

    def restart(self) -> None:
        """Forget what was sampled and start the turn again, with the same random numbers."""
        self.token_ids, self.logprobs, self.outcome = [], [], None
        self._random.seed(self.sampling.seed)
        if self.guide is not None:
            self.guide.restart()

    def draw(self) -> float:
        """Uniform in [0, 1) on a grid of 2^-24, which float32 holds exactly."""
        return self._random.getrandbits(24) * 2.0**-24

    def accept(self, token: int, logprob: float, policy_version: int) -> None:
        """Take a sampled token; sets `outcome` if the turn ends with it."""
        if not math.isfinite(logprob):
            wrong = "the model's logits are not finite"
            dead_end = ", or no token can go on in the turn's grammar"
            self.outcome = EngineError(wrong + (dead_end if self.guide is not None else ""))
            return
        self.token_ids.append(token)
        self.logprobs.append(logprob)
        if token in self.sampling.stop_token_ids:
            self._complete("stop", policy_version)
        elif self.watched is not None and self.watched.completed_by_last(self.token_ids):
            self._complete("stop_string", policy_version)
        elif len(self.token_ids) >= self.limit:
            self._complete("length", policy_version)
        elif self.guide is not None:
            self.guide.take(token)

    def _complete(self, reason: FinishReason, policy_version: int) -> None:
        self.outcome = Generation(
            token_ids=tuple(self.token_ids),
            logprobs=tuple(self.logprobs),
            finish_reason=reason,
            policy_version=policy_version,
        )
