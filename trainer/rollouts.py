"""The sync side of the agent loop: requests in, scored trajectories out, nothing left open.

Everything async of a trainer lives between `__enter__` and `__exit__` of one object: the event
loop's thread and an engine that was made for it. An engine that was handed in is not closed.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from agentgym.engines.base import Engine
from agentgym.errors import EngineError
from agentgym.rollout.background import LoopThread
from agentgym.rollout.collect import collect
from agentgym.rollout.player import Player
from agentgym.trajectory import RolloutOutput, RolloutRequest

MakePlayer = Callable[[Engine], Player]


@dataclass(frozen=True, kw_only=True)
class Played:
    """What a rollout gave, and how long it took."""

    outputs: list[RolloutOutput]
    """In the order of the requests."""
    seconds: float
    sync_seconds: float
    """Bringing the engine to the current weights."""


class Rollouts:
    """Plays trajectories for a caller that is not async.

    Args:
        make_engine: builds the engine of a session.
        make_player: everything else a rollout needs.
        engine: use this one instead; it stays open. Nobody knows what it did before a session,
            so each begins with an update of its weights.
    """

    def __init__(
        self,
        make_engine: Callable[[], Engine],
        make_player: MakePlayer,
        *,
        engine: Engine | None = None,
    ) -> None:
        self._make_engine = make_engine
        self._make_player = make_player
        self._given = engine
        self._engine: Engine | None = None
        self._loop: LoopThread | None = None
        self._is_stale = False

    def weights_changed(self) -> None:
        """Before it plays again, the engine must drop what it computed with the old weights."""
        self._is_stale = True

    @contextmanager
    def session(self) -> Iterator[LoopThread]:
        """Keep loop and engine for the time of the block; blocks within it share them."""
        if self._loop is not None:
            yield self._loop
            return
        self._loop = LoopThread()
        try:
            yield self._loop
        finally:
            self._close(self._loop)

    def play(self, requests: Sequence[RolloutRequest], *, temperature: float) -> Played:
        """Play all requests under the current weights.

        Args:
            requests: what to play.
            temperature: 0.0 is greedy.

        Raises:
            TooManyFailuresError: more failed than is tolerated.
            UsageError: the caller must change something.
        """
        with self.session() as loop:
            started = time.perf_counter()
            engine = self._current_engine(loop)
            synced = time.perf_counter()
            player = self._make_player(engine)
            player = replace(player, sampling=replace(player.sampling, temperature=temperature))
            outputs = loop.run(collect(requests, player))
            _refuse_stale(outputs, engine.policy_version)
            seconds = time.perf_counter() - synced
        return Played(outputs=outputs, seconds=seconds, sync_seconds=synced - started)

    def _current_engine(self, loop: LoopThread) -> Engine:
        if self._engine is None:
            self._engine = self._given if self._given is not None else self._make_engine()
            self._is_stale = self._engine is self._given
        if self._is_stale:
            loop.run(self._engine.update_weights())
        self._is_stale = False
        return self._engine

    def _close(self, loop: LoopThread) -> None:
        engine, self._engine, self._loop = self._engine, None, None
        try:
            if engine is not None and engine is not self._given:
                loop.run(engine.aclose())
        finally:
            loop.close()


def _refuse_stale(outputs: Sequence[RolloutOutput], version: int) -> None:
    """Every token was sampled by the weights the engine says it has."""
    for output in outputs:
        if set(output.policy_versions) - {version}:
            raise EngineError(
                f"{output.request_id} was sampled by policy versions {output.policy_versions}, "
                f"but the engine is at {version}"
            )
