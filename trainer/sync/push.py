"""The policy's weights to the engine, acknowledged, before it samples again."""

import time
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import nn

from agentgym.engines.base import Engine
from agentgym.engines.weights import Bucket, KeepsWeights
from agentgym.errors import ConfigError, EngineError
from agentgym.rollout.background import LoopThread
from agentgym.trainer.ranks import Ranks
from agentgym.trainer.sync.gather import Contents, Kind, contents_of
from agentgym.trainer.sync.handover import HandedOver


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
    """Sent by this rank; 0 where the engine samples from the trained model itself."""
    num_changed: int
    """Tensors that differ from those of the update before."""


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
        self._version = 0
        self._sums: dict[str, tuple[float, float]] = {}
        self._base_of: int | None = None
        """Identity of the engine that has the model's own weights, below an adapter."""
        self.figures: SyncFigures | None = None
        """Of the last update."""

    def push(self, engine: Engine, loop: LoopThread, *, must_change: bool = False) -> int:
        """Give the engine the current weights.

        Args:
            engine: the same kind on every rank.
            loop: where the engine lives.
            must_change: an optimizer step was made since the last update.

        Returns:
            The policy version it is at.

        Raises:
            UsageError: weights that are not finite, or not those of the engine's model, or not
                changed although they must be.
            EngineError: they did not arrive, or not in time.
        """
        started = time.perf_counter()
        if not isinstance(engine, KeepsWeights):
            version = self._ranks.together(lambda: loop.run(engine.update_weights()))
            self.figures = SyncFigures(version, time.perf_counter() - started, 0, 0)
            return version
        version = 1 + max(self._ranks.gather(max(self._version, engine.policy_version)))
        size, changed = self._ranks.together(lambda: self._deliver(engine, loop, version))
        if must_change and not changed:
            raise ConfigError(
                "an optimizer step was made, but no tensor that the engine is given has changed: "
                "is what is trained part of the model (sync_kind), and learning_rate above 0?"
            )
        self._version = version
        self.figures = SyncFigures(version, time.perf_counter() - started, size, changed)
        return version

    def _deliver(self, engine: Engine, loop: LoopThread, version: int) -> tuple[int, int]:
        if self._settings.kind == "lora" and self._base_of != id(engine):
            self._send(engine, loop, contents_of(self._model, "lora").without_adapter(), version)
        contents = contents_of(self._model, self._settings.kind)
        return self._send(engine, loop, contents, version)

    def _send(
        self, engine: Engine, loop: LoopThread, contents: Contents, version: int
    ) -> tuple[int, int]:
        raise NotImplementedError
