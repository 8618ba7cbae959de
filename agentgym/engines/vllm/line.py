"""A line from the trainer to all workers of its servers, over which bytes are broadcast.

Trainer and workers meet at a store of their own: the trainer's default group, if it has one, is
neither needed nor touched. What kind of group moves the bytes, and where they lie, is all that
differs between the backends. Nothing waits without a deadline, or for a trainer that is gone.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol

from agentgym.errors import EngineError, boundary
from agentgym.threads import Worker

ABSENT = "the servers did not join the transfer"
LOST = "weights did not get through to the servers"
_OVER = "over"
"""Key of the store: the trainer has left."""
_LOOK_S = 0.5
"""How often those who wait ask whether the trainer is still there."""
_SHORTEST_S, _LONGEST_S = 0.0001, 0.005
_ABORT_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """A member's place."""

    host: str
    """Of the trainer."""
    rank: int
    """0 is the trainer."""
    world_size: int
    """The trainer and all workers."""
    timeout_s: float
    """For all to join, and for one broadcast."""


class Carrier(Protocol):
    """What moves the bytes."""

    @property
    def on_gpu(self) -> bool:
        """Whether they must lie in a GPU's memory."""
        ...

    def join(self, store: Any, seat: Seat) -> Any:
        """A `torch.distributed.Backend` with the others, who are all about to call this.

        Raises:
            ConfigError: this process cannot be a member.
        """
        ...


class Line:
    """One member's end.

    Args:
        store: a `meeting_place`.
        seat: of this member.
        carrier: the same kind for all.
    """

    def __init__(self, store: Any, seat: Seat, carrier: Carrier) -> None:
        self._store = store
        self._seat = seat
        self._carrier = carrier
        self._group: Any = None
        self._is_cut = False

    def join(self) -> None:
        """Become a member; returns once all are.

        Raises:
            ConfigError: this process cannot be one.
            EngineError: not all have come in time, or the trainer has left.
        """
        everybody = [f"member/{rank}" for rank in range(self._seat.world_size)]
        with boundary(EngineError, ABSENT):
            self._store.set(everybody[self._seat.rank], "")
            self._wait(lambda: self._store.check(everybody), ABSENT)
        self._group = self._carrier.join(self._store, self._seat)
        if self._is_cut:
            self._abort()

    def broadcast(self, buffer: Any) -> None:
        """From the trainer to all; the bytes are there when it returns. A failed line is cut.

        Args:
            buffer: [bytes] uint8, of the same length for all.

        Raises:
            EngineError: not in time, or the trainer has left.
        """
        if self._group is None:
            raise EngineError("the transfer was cut: join a new one")
        if not len(buffer):
            return
        try:
            with boundary(EngineError, LOST):
                work = self._group.broadcast(buffer, 0)
                self._wait(work.is_completed, LOST)
                work.wait()
        except BaseException:
            self.cut()
            raise

    def cut(self) -> None:
        """Leave, from any thread; whoever waits for this member fails. The trainer's takes all.

        A group may wait for the deadline of a broadcast under way before it ends; nobody waits for
        that.
        """
        self._is_cut = True
        if self._seat.rank == 0:
            with suppress(RuntimeError):
                self._store.set(_OVER, "")
        self._abort()

    def _abort(self) -> None:
        if self._group is None:
            return
        groups, self._group = [self._group], None
        leaving = Worker()
        left = leaving.submit(lambda: groups.pop().abort())  # the last that knows it: it is freed
        leaving.stop()
        with suppress(RuntimeError, TimeoutError):
            left.result(_ABORT_S)

    def _wait(self, is_done: Callable[[], bool], problem: str) -> None:
        ends = time.monotonic() + self._seat.timeout_s
        looks, pause_s = time.monotonic() + _LOOK_S, _SHORTEST_S
        while not is_done():
            now = time.monotonic()
            if now > looks:
                self._refuse_over(problem)
                looks = now + _LOOK_S
            if now > ends:
                raise EngineError(f"{problem} within {self._seat.timeout_s:g} s")
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_S)
        if self._is_cut:  # what was cut counts as done
            raise EngineError(f"{problem}: the transfer was cut")

    def _refuse_over(self, problem: str) -> None:
        try:
            is_over = self._is_cut or self._store.check([_OVER])
        except RuntimeError as error:
            raise EngineError(f"{problem}: the trainer is gone") from error
        if is_over:
            raise EngineError(f"{problem}: the trainer has left")


def meeting_place(host: str, port: int, *, is_host: bool, timeout_s: float) -> Any:
    """A `TCPStore`, where the members of a line find each other.

    Args:
        host: of the trainer.
        port: 0 = any that is free.
        is_host: the trainer is; does not wait for anybody.
        timeout_s: for reaching it.
    """
    from torch import distributed

    store: Any = vars(distributed)["TCPStore"]
    return store(host, port, None, is_host, timedelta(seconds=timeout_s), False)
