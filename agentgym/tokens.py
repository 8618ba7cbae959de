"""What one episode looked like to the model, token by token.

Sampled tokens are the truth: ids and log-probabilities are recorded when they are sampled and never
re-encoded. Where a token came from is stored; the loss mask is derived from that and cannot be set.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, model_validator

Source = Literal["template", "sampled", "env", "injected"]


class Segment(BaseModel):
    """A run of token ids from one source.

    `template` is the rendered prompt, `sampled` what the policy produced, `env` rendered
    observations, `injected` text a scheduler put into the policy's mouth.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    ids: tuple[int, ...]
    """[T] token ids, in the order the model saw them."""
    source: Source
    logprobs: tuple[float, ...] = ()
    """[T] log-probability at sampling time, in nats, for sampled ids; empty for the others."""
    policy_version: int | None = None
    """Weight updates the policy had seen that sampled the first id; only for sampled ids."""
    token_versions: tuple[int, ...] = ()
    """[T] the same for each id, if the weights changed while they were sampled; else empty."""
    message_index: int | None = None
    """Index of the first message these ids belong to."""
    frozen: bool = False
    """Sampled ids that do not count here: they do in another trace of the trajectory, or a
    scheduler took them back."""
    constrained: bool = False
    """Sampled ids that a constraint forced into a form: they count, and are not trained."""

    @model_validator(mode="after")
    def _logprobs_match_source(self) -> Self:
        expected = len(self.ids) if self.source == "sampled" else 0
        if len(self.logprobs) != expected:
            raise ValueError(
                f"a {self.source} segment of {len(self.ids)} tokens needs {expected} logprobs, "
                f"got {len(self.logprobs)}"
            )
        if self.token_versions and len(self.token_versions) != expected:
            raise ValueError(
                f"{len(self.token_versions)} policy versions for {expected} sampled ids"
            )
        if not all(map(math.isfinite, self.logprobs)):
            raise ValueError("the logprob of a sampled token must be finite")
        if self.frozen and self.source != "sampled":
            raise ValueError(f"only sampled ids can be frozen, not {self.source} ones")
        if self.constrained and self.source != "sampled":
            raise ValueError(f"only sampled ids can be constrained, not {self.source} ones")
        if (self.policy_version is None) == (self.source == "sampled"):
            raise ValueError("policy_version belongs to sampled segments, and only to them")
        return self

    @property
    def versions(self) -> set[int]:
        """Policy versions that sampled these ids."""
        if self.policy_version is None:
            return set()
        return set(self.token_versions) or {self.policy_version}

    @property
    def is_spoken(self) -> bool:
        """True if these are what the policy said, in the one trace where it counts."""
        return self.source == "sampled" and not self.frozen

    @property
    def is_trained(self) -> bool:
        """True if the loss mask is 1 on these ids."""
        return self.is_spoken and not self.constrained

    def head(self, length: int, *, frozen: bool | None = None) -> "Segment":
        """The first `length` ids, with their logprobs.

        Args:
            length: how many; all of them if there are fewer.
            frozen: of sampled ids; as it is if left out.
        """
        is_sampled = self.source == "sampled"
        update = {
            "ids": self.ids[:length],
            "logprobs": self.logprobs[:length],
            "token_versions": self.token_versions[:length],
            "frozen": is_sampled and (self.frozen if frozen is None else frozen),
        }
        return self.model_copy(update=update)


def flat_ids(segments: Iterable[Segment]) -> list[int]:
    """[T] every id, in order."""
    return [token for segment in segments for token in segment.ids]


def flat_mask(segments: Iterable[Segment]) -> list[bool]:
    """[T] True exactly on the sampled tokens that are trained."""
    return [segment.is_trained for segment in segments for _ in segment.ids]


def flat_logprobs(segments: Iterable[Segment]) -> list[float]:
    """[T] log-probability at sampling time, in nats; 0.0 where the mask is False."""
    return [
        logprob
        for segment in segments
        for logprob in (segment.logprobs if segment.is_trained else (0.0,) * len(segment.ids))
    ]


class TokenTrace:
    """Append-only ids of one episode with their provenance.

    `ids`, `mask` and `logprobs` are derived from the same segments, so their lengths agree by
    construction and no token that was not sampled can reach the loss.
    """

    def __init__(self, segments: Iterable[Segment] = ()) -> None:
        self._segments: list[Segment] = []
        self._ids: list[int] = []
        for segment in segments:
            self.append(segment)

    def append(self, segment: Segment) -> None:
        """Add ids at the end; an empty segment is left out."""
        if not segment.ids:
            return
        self._segments.append(segment)
        self._ids += segment.ids

    @property
    def segments(self) -> tuple[Segment, ...]:
        return tuple(self._segments)

    @property
    def ids(self) -> Sequence[int]:
        """[T] the prompt of the next engine call, if there is one."""
        return self._ids

    @property
    def mask(self) -> list[bool]:
        """[T] True exactly on the sampled tokens that are trained."""
        return flat_mask(self._segments)

    @property
    def logprobs(self) -> list[float]:
        """[T] log-probability at sampling time, in nats; 0.0 where `mask` is False."""
        return flat_logprobs(self._segments)

    @property
    def num_sampled(self) -> int:
        return sum(len(s.ids) for s in self._segments if s.source == "sampled")

    def __len__(self) -> int:
        return len(self._ids)
