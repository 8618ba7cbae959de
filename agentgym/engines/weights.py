"""New weights on their way from the trainer to an engine that has a copy of its own.

The trainer hands over tensors under the names of the model's checkpoint, bucket by bucket, so that
no more than a bucket is in memory twice. An engine stages what it is given and swaps it in as a
whole: an update that fails half-way leaves the old weights serving.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

from agentgym.errors import ConfigError, OutageError

Bucket = Mapping[str, Any]
"""Some of the tensors (`torch.Tensor`, on any device, detached) by checkpoint name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSpec:
    """What one tensor must look like."""

    shape: tuple[int, ...]
    dtype: str
    """As in `torch.float32`, without the `torch.`."""


class Weights(Protocol):
    """One policy, complete: every tensor is in exactly one bucket."""

    @property
    def version(self) -> int:
        """The policy version the engine is at afterwards; higher than any before."""
        ...

    @property
    def kind(self) -> Literal["full", "lora"]:
        """All of the model's weights, or those of an adapter over weights the engine has."""
        ...

    @property
    def specs(self) -> Mapping[str, TensorSpec]:
        """Every tensor, by name."""
        ...

    @property
    def lora_config(self) -> Mapping[str, Any]:
        """Content of the adapter's `adapter_config.json`; empty where `kind` is `full`."""
        ...

    def buckets(self) -> Iterator[Bucket]:
        """The tensors; blocks until they are gathered, so iterate off the event loop. Once only."""
        ...


@runtime_checkable
class KeepsWeights(Protocol):
    """An engine with a copy of the weights: `update_weights` must be given them."""

    keeps_weights: Literal[True]
    is_shared: bool
    """Whether the engines of all processes sample from one copy, on servers: then one of them
    brings the weights, and the others follow."""

    async def follow(self, version: int) -> None:
        """Another process has brought the servers that this engine shares with it to `version`.

        Raises:
            EngineError: a server says otherwise.
        """
        ...


@runtime_checkable
class CopiesModel(Protocol):
    """An engine that computes with a copy of the trained model: it is given tensors as they are in
    there, where the model's files have others."""

    copies_model: Literal[True]


@runtime_checkable
class OnServers(Protocol):
    """An engine whose weights are on servers, which engines of other processes may use too."""

    @property
    def run(self) -> str:
        """Mark of this process' run among others on the same servers."""
        ...

    def take_part_in(self, run: str) -> None:
        """Be known to the servers as the processes are that have the same mark."""
        ...

    def places(self) -> frozenset[str]:
        """A name for each server, the same wherever it is asked for."""
        ...

    async def connect(self) -> None:
        """Know what the servers have, unless it is known.

        Raises:
            ConfigError: a server is not what is needed.
            EngineError: one did not answer in time.
        """
        ...


@runtime_checkable
class KnowsDtype(Protocol):
    """An engine that says what its model computes in."""

    def dtype(self) -> str:
        """As in `torch.bfloat16`, without the `torch.`; the coarsest, where copies differ."""
        ...


@runtime_checkable
class Sleeps(Protocol):
    """An engine that can give its memory to training; whatever needs it next wakes it."""

    async def sleep(self) -> None:
        """Free weights and caches; only while nothing is sampled. Idempotent."""
        ...


class WeightsLostError(OutageError):
    """The engine was started anew: it samples from other weights until it is given these again."""


class Match(NamedTuple):
    """How the names of two models differ; both lists are sorted."""

    unmatched: list[str]
    """Offered, and unknown to the engine."""
    missing: list[str]
    """Known to the engine, and not offered."""

    def refuse(self) -> None:
        """Raise a `ConfigError` unless all names are on both sides."""
        said = [
            f"{what}: {_some(names)}"
            for what, names in (
                ("unmatched names, which the engine's model does not have", self.unmatched),
                ("missing names, which the engine's model has", self.missing),
            )
            if names
        ]
        if said:
            raise ConfigError(
                f"the weights are not those of the engine's model; {'; '.join(said)}: let the "
                "engine serve the model that is trained"
            )


def match(offered: Iterable[str], known: Iterable[str]) -> Match:
    """Hold the names of an update against those of the engine's model."""
    return Match(sorted({*offered} - {*known}), sorted({*known} - {*offered}))


def _some(names: Sequence[str], limit: int = 5) -> str:
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more
