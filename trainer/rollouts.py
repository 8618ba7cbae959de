"""The sync side of the agent loop: requests in, trajectories out, nothing left open.

Everything async of a trainer lives between `__enter__` and `__exit__` of one object: the event
loop's thread and an engine that was made for it. An engine that was handed in is not closed.
Weights go to the engine from the caller's thread, between two calls of `begin` and `finish`; what
is being played meanwhile goes on under the new ones.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from agentgym.engines.base import Engine
from agentgym.engines.weights import KeepsWeights, Sleeps
from agentgym.rollout.background import LoopThread, Running
from agentgym.rollout.collect import collect
from agentgym.rollout.player import Player
from agentgym.trainer.ages import Ages, Staleness
from agentgym.trajectory import RolloutOutput, RolloutRequest

MakePlayer = Callable[[Engine], Player]
Push = Callable[[Engine, LoopThread], int]
"""Gives an engine the current weights, and returns its version of them; collective."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """Who samples, and how it gets to know what."""

    make: Callable[[], Engine]
    """Builds the engine of a session."""
    push: Push
    """Brings it to the current weights."""
    given: Engine | None = None
    """Use this one instead; it stays open. Nobody knows what it did before a session, so each
    begins with an update of its weights."""


@dataclass(frozen=True, kw_only=True)
class Played:
    """What a rollout gave, and how long it took."""

    requests: Sequence[RolloutRequest]
    outputs: list[RolloutOutput]
    """In the order of the requests."""
    staleness: Staleness
    seconds: float
    """The caller waited for it."""
    span_seconds: float
    """From its beginning to its end."""


@dataclass(frozen=True, kw_only=True)
class Playing:
    """Trajectories on their way."""

    requests: Sequence[RolloutRequest]
    running: "Running[tuple[list[RolloutOutput], float]]"
    began: float


class Rollouts:
    """Plays trajectories for a caller that is not async.

    Args:
        source: of the engine.
        make_player: everything else a rollout needs.
        max_age: updates of the weights that a token may be behind when it is used.
    """

    def __init__(self, source: Source, make_player: MakePlayer, *, max_age: int = 0) -> None:
        self._source = source
        self._make_player = make_player
        self._engine: Engine | None = None
        self._loop: LoopThread | None = None
        self._slots: asyncio.Semaphore | None = None
        self._ages = Ages(max_age)
        self._is_stale = False

    def weights_changed(self) -> None:
        """Before it plays again, the engine must be told of the new weights."""
        self._is_stale = True
        self._ages.updated()

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

    def prepare(self) -> Engine:
        """The session's engine, made if there is none yet."""
        if self._engine is None:
            given = self._source.given
            self._engine = given if given is not None else self._source.make()
            self._is_stale = given is not None or isinstance(self._engine, KeepsWeights)
            if not self._is_stale:
                self._ages.pushed(self._engine.policy_version)
        return self._engine

    def sync(self) -> float:
        """Bring the engine to the current weights; seconds it took. Collective."""
        started = time.perf_counter()
        if self._is_stale:
            version = self._source.push(self.prepare(), self._now())
            self._ages.pushed(version)
            self._is_stale = False
        return time.perf_counter() - started

    def begin(
        self, requests: Sequence[RolloutRequest], *, temperature: float, is_ahead: bool = False
    ) -> Playing:
        """Start playing, within a session.

        Args:
            requests: what to play.
            temperature: 0.0 is greedy.
            is_ahead: share the places of trajectories with all others that are; first come, first
                served.
        """
        player = self._make_player(self.prepare())
        player = replace(player, sampling=replace(player.sampling, temperature=temperature))
        if self._slots is None:
            self._slots = asyncio.Semaphore(player.concurrency)
        work = _timed(requests, player, self._slots if is_ahead else None)
        return Playing(
            requests=requests, running=self._now().start(work), began=time.perf_counter()
        )

    def finish(self, playing: Playing, *, max_age: int = 0) -> Played:
        """Wait for what was begun.

        Args:
            playing: given by `begin`.
            max_age: updates of the weights that its tokens may be behind by now.

        Raises:
            TooManyFailuresError: more failed than is tolerated.
            UsageError: the caller must change something.
            EngineError: the engine sampled with weights it should not have had.
        """
        started = time.perf_counter()
        outputs, ended = playing.running.result()
        waited = time.perf_counter() - started
        version = self.prepare().policy_version
        return Played(
            requests=playing.requests,
            outputs=outputs,
            staleness=self._ages.of(outputs, version, max_age=max_age),
            seconds=waited,
            span_seconds=ended - playing.began,
        )

    def rest(self) -> None:
        """Let an engine that can give its memory to training, unless it is still at work."""
        loop = self._now()
        if isinstance(self._engine, Sleeps) and not loop.is_busy:
            loop.run(self._engine.sleep())

    def drop(self) -> None:
        """Give up what was begun and not finished; every env of it is closed."""
        if self._loop is not None:
            self._loop.drop()

    def _now(self) -> LoopThread:
        assert self._loop is not None, "trajectories are played within a session"
        return self._loop

    def _close(self, loop: LoopThread) -> None:
        engine, self._engine, self._loop, self._slots = self._engine, None, None, None
        try:
            loop.drop()
            if engine is not None and engine is not self._source.given:
                loop.run(engine.aclose())
        finally:
            loop.close()


async def _timed(
    requests: Sequence[RolloutRequest], player: Player, slots: asyncio.Semaphore | None
) -> tuple[list[RolloutOutput], float]:
    """Outputs, and when the last one ended."""
    outputs = await collect(requests, player, slots=slots)
    return outputs, time.perf_counter()
