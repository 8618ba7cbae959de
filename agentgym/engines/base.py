"""What samples from the policy: tokens in, tokens out.

An engine knows nothing about messages. `session` names a trajectory, so that an engine can keep its
key/value cache from one turn to the next.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from agentgym.constraint import Constraint
from agentgym.engines.weights import Weights
from agentgym.errors import ConfigError, EngineError

_MAX_LOGPROB = 1e-3
"""Nats; what rounding may add to a probability of 1."""

FinishReason = Literal["stop", "stop_string", "length", "abort"]
"""A stop token, a stop string, the token limit, or given up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How to sample one turn."""

    max_tokens: int
    """Upper bound on the sampled ids, the stop token included."""
    seed: int
    """The same seed, prompt and weights give the same ids, whatever else is in the batch."""
    stop_token_ids: frozenset[int] = frozenset()
    stop: tuple[str, ...] = ()
    """Strings that end the turn; the token that completes one is the last id. Only what is sampled
    is looked at, not the prompt."""
    temperature: float = 1.0
    """0.0 is greedy."""
    top_p: float = 1.0
    top_k: int = 0
    """0 = all."""
    constraint: Constraint | None = None
    """What the turn must match; a stop token ends it only where it does."""

    def __post_init__(self) -> None:
        """Refuse what no engine could sample.

        Raises:
            ConfigError: a value is out of range; names it.
        """
        in_range = {
            "max_tokens": self.max_tokens >= 1,
            "temperature": 0.0 <= self.temperature < float("inf"),
            "top_p": 0.0 < self.top_p <= 1.0,
            "top_k": self.top_k >= 0,
            "stop": all(self.stop),
        }
        wrong = [f"{name}={getattr(self, name)}" for name, fine in in_range.items() if not fine]
        if wrong:
            raise ConfigError(
                f"cannot sample with {', '.join(wrong)}: need max_tokens >= 1, temperature >= 0, "
                "0 < top_p <= 1, top_k >= 0 and stop strings that are not empty"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """One sampled turn."""

    token_ids: tuple[int, ...]
    """[T] sampled ids; ends with the stop token if `finish_reason` is `stop`, and with the token
    that completes the stop string if it is `stop_string`."""
    logprobs: tuple[float, ...]
    """[T] nats, of the distribution sampled from: temperature, the constraint, then top-k, then
    top-p applied.
    Greedy sampling (temperature 0) reports the plain distribution, as if at temperature 1."""
    finish_reason: FinishReason
    policy_version: int
    """That of the first token."""
    token_versions: tuple[int, ...] = ()
    """[T] policy version of each token, if the weights changed while the turn was sampled."""

    def __post_init__(self) -> None:
        """Refuse what nothing can have sampled.

        Raises:
            EngineError: not one logprob per id, an id below 0, or a logprob that is none.
        """
        if len(self.logprobs) != len(self.token_ids):
            given = f"{len(self.token_ids)} tokens needs {len(self.token_ids)} logprobs"
            raise EngineError(f"a turn of {given}, got {len(self.logprobs)}")
        if self.token_versions and len(self.token_versions) != len(self.token_ids):
            raise EngineError(
                f"a turn of {len(self.token_ids)} tokens, and policy versions of "
                f"{len(self.token_versions)}"
            )
        if self.token_ids and min(self.token_ids) < 0:
            raise EngineError(f"the engine sampled the token id {min(self.token_ids)}")
        wrong = [p for p in self.logprobs if not -math.inf < p <= _MAX_LOGPROB]
        if wrong:
            raise EngineError(f"the engine gave {wrong[0]} as the logprob of a sampled token")


def refuse_unknown_ids(what: str, token_ids: Sequence[int], vocabulary: int) -> None:
    """Hold ids against a vocabulary.

    Raises:
        EngineError: one lies outside 0 to `vocabulary` - 1.
    """
    if not token_ids:
        return
    low, high = min(token_ids), max(token_ids)
    if low < 0 or high >= vocabulary:
        raise EngineError(
            f"{what} holds token id {low if low < 0 else high}; the model knows 0 to "
            f"{vocabulary - 1}"
        )


class Engine(Protocol):
    """Samples from one policy for many trajectories at once."""

    @property
    def max_context(self) -> int:
        """Longest prompt plus completion, in tokens."""
        ...

    @property
    def policy_version(self) -> int:
        """Weight updates seen so far."""
        ...

    async def generate(
        self, prompt_ids: tuple[int, ...], sampling: Sampling, *, session: str
    ) -> Generation:
        """Sample one turn; cancelling the awaiting task frees its slot.

        Raises:
            EngineError: the prompt does not fit, or the model failed.
            OutageError: no turn can be sampled any more, of whatever trajectory.
        """
        ...

    def release(self, session: str) -> None:
        """The trajectory is over: forget its cache. Unknown sessions are fine."""
        ...

    async def update_weights(self, weights: Weights | None = None) -> int:
        """The weights have changed: drop every cache and return the new policy version.

        Args:
            weights: the new ones, for an engine that keeps its own (`KeepsWeights`).

        Raises:
            ConfigError: they are not those of the engine's model; says which. It goes on serving
                what it had.
            EngineError: they did not arrive, or not in time; it goes on serving what it had, if it
                still serves at all.
        """
        ...

    async def aclose(self) -> None:
        """Free everything; idempotent."""
        ...


class TextOnlyEngine:
    """Base of engines whose ids and logprobs are not those of the sampler; not to be trained on."""


def refuse_text_only(engine: object) -> None:
    """Hold an engine against what training needs.

    Raises:
        ConfigError: it does not know what was sampled.
    """
    if isinstance(engine, TextOnlyEngine):
        raise ConfigError(
            f"{type(engine).__name__} gives text, not the sampled tokens and their "
            "log-probabilities: use it for rollout and eval, and train with a transformers or vLLM "
            "engine"
        )
