"""The policy's weights to the engine, acknowledged, before it samples again."""

import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

import torch
from torch import Tensor, nn

from agentgym.engines.base import Engine
from agentgym.engines.weights import Bucket, CopiesModel, KeepsWeights, OnServers
from agentgym.errors import ConfigError, EngineError
from agentgym.rollout.background import LoopThread
from agentgym.trainer.ranks import Ranks
from agentgym.trainer.sync.gather import Kind, contents_of
from agentgym.trainer.sync.handover import HandedOver

_PIECE = 1 << 24
"""Numbers whose sums are taken at once."""


@dataclass(frozen=True, kw_only=True)
class SyncSettings:
    """How weights travel."""

    kind: Kind = "full"
    """`full` merges an adapter into the weights, `lora` sends the adapter alone."""
    bucket_bytes: int = 512 << 20
    """Held twice at most: where it is gathered, and on its way."""
    timeout_s: float = 600.0
    """For a whole update, gathering included."""

    def __post_init__(self) -> None:
        if self.bucket_bytes < 1 or not 0 < self.timeout_s < float("inf"):
            raise ConfigError(f"{self}: need bucket_bytes >= 1 and a finite timeout_s above 0")


class SyncFigures(NamedTuple):
    """What an update was."""

    version: int
    seconds: float
    num_bytes: int
    """Of all tensors; 0 where the engine samples from the trained model itself."""
    num_changed: int
    """Tensors that differ from those of the update before."""

    @property
    def complaint(self) -> str | None:
        """What is wrong with it if something should have been learned since the one before."""
        if self.num_changed or not self.num_bytes:
            return None
        return (
            f"weight update {self.version}: none of the tensors has changed since the one before; "
            "is what is trained among them, and learning_rate large enough for their precision?"
        )


class WeightSync:
    """Brings engines to the trained weights; every call is collective.

    Args:
        model: the trained one, in any wrapping.
        settings: how.
        ranks: the processes that train.
    """

    def __init__(self, model: nn.Module, *, settings: SyncSettings, ranks: Ranks) -> None:
        self._model = model
        self._settings = settings
        self._ranks = ranks
        self._version = -1
        self._prints = Fingerprints()
        self.figures: SyncFigures | None = None
        """Of the last update."""

    @property
    def version(self) -> int:
        """Of the present weights, the last one given; -1 before any was."""
        return self._version

    def next_version(self) -> int:
        """For an engine that is made over the model itself: none of this run's had it before."""
        self._version += 1
        return self._version

    def go_on_from(self, version: int) -> None:
        """Give the next update a version above this one."""
        self._version = max(self._version, version)

    def push(self, engine: Engine, loop: LoopThread) -> int:
        """Give the engine the current weights.

        Args:
            engine: the same kind on every rank.
            loop: where the engine lives.

        Returns:
            The policy version it is at.

        Raises:
            UsageError: weights that are not finite, or not those of the engine's model.
            EngineError: they did not arrive, or not in time.
        """
        started = time.perf_counter()
        if isinstance(engine, KeepsWeights):
            version = self._push_to_keeper(engine, loop)
        else:
            version = self._ranks.together(lambda: loop.run(engine.update_weights()))
            self._version = max(self._version, version)
        prints = self._prints
        self.figures = SyncFigures(
            version, time.perf_counter() - started, prints.num_bytes, prints.num_changed
        )
        return version

    def _push_to_keeper(self, engine: Engine, loop: LoopThread) -> int:
        assert isinstance(engine, KeepsWeights)
        places: frozenset[str] = frozenset()
        run = ""
        if isinstance(engine, OnServers):
            connecting = engine.connect()
            self._ranks.together(lambda: loop.run(connecting))
            places, run = engine.places(), engine.run
        known = self._ranks.gather((max(self._version, engine.policy_version), places, run))
        version = self._version = 1 + max(version for version, _, _ in known)
        bringing = senders([places for _, places, _ in known])
        if isinstance(engine, OnServers):
            engine.take_part_in(known[0][2])
        sends = not engine.is_shared or self._ranks.index in bringing
        self._ranks.together(lambda: self._gather(engine if sends else None, loop, version))
        if not sends:
            follow = engine.follow(version)
        self._ranks.together(lambda: None if sends else loop.run(follow))
        self._prints.arrived()
        return version

    def _gather(self, engine: Engine | None, loop: LoopThread, version: int) -> None:
        """Gather all weights and deliver them to the engine, if this rank has to."""
        as_saved = not isinstance(engine, CopiesModel)
        contents = contents_of(self._model, self._settings.kind, as_saved=as_saved)
        buckets = self._prints.watch(contents.buckets(self._settings.bucket_bytes))
        if engine is None:
            deque(buckets, maxlen=0)
            return
        ends = time.perf_counter() + self._settings.timeout_s
        weights = HandedOver(contents, version, ends=ends)
        delivery = loop.start(engine.update_weights(weights))
        try:
            weights.feed(buckets, delivery)
            if not delivery.ended(max(ends - time.perf_counter(), 0.0)):
                limit = f"{self._settings.timeout_s:g} s"
                raise EngineError(f"no weight update within {limit} (sync_timeout_s)")
            acknowledged = delivery.result()
        finally:
            delivery.cancel()
        if acknowledged != version:
            raise EngineError(
                f"the engine says it is at policy version {acknowledged}, not at {version}"
            )


class Fingerprints:
    """Tells which tensors of an update differ from those of the one before."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[float, ...]] = {}
        self._seen: dict[str, tuple[float, ...]] = {}
        self.num_bytes = 0
        self.num_changed = 0

    def watch(self, buckets: Iterable[Bucket]) -> Iterator[Bucket]:
        """The buckets, counted; the first update changes everything."""
        self.num_bytes = self.num_changed = 0
        self._seen = {}
        for bucket in buckets:
            prints = _prints(bucket)
            self.num_bytes += sum(tensor.nbytes for tensor in bucket.values())
            self.num_changed += sum(self._known.get(name) != seen for name, seen in prints.items())
            self._seen.update(prints)
            yield bucket

    def arrived(self) -> None:
        """The engine has what was watched last: the next update is compared with it."""
        self._known = self._seen


def senders(everyones: Sequence[frozenset[str]]) -> set[int]:
    """Ranks that bring weights: the first one of those that sample from the same servers.

    Args:
        everyones: servers of every rank.

    Raises:
        ConfigError: two ranks share some servers and not all, so that nobody could bring them
            weights as a whole.
    """
    for theirs, others in combinations(everyones, 2):
        if theirs & others and theirs != others:
            raise ConfigError(
                f"one process samples from {_listed(theirs)}, another one from "
                f"{_listed(others)}: give all of them the same servers, or each its own"
            )
    return {everyones.index(places) for places in everyones}


def _listed(places: frozenset[str]) -> str:
    return ", ".join(sorted(places))


def _prints(bucket: Bucket) -> dict[str, tuple[float, ...]]:
    """Sum and sum of squares of each tensor, in float64."""
    rows = torch.stack([_sums(whole) for whole in bucket.values()]).tolist() if bucket else []
    return dict(zip(bucket, map(tuple, rows), strict=True))


def _sums(whole: Tensor) -> Tensor:
    """[2], piece by piece: in float64 a large tensor of half precision is four times as large."""
    pieces = torch.split(whole.reshape(-1), _PIECE)
    wide = (piece.double() for piece in pieces)
    return torch.stack([torch.stack([w.sum(), w.square().sum()]) for w in wide]).sum(0)
