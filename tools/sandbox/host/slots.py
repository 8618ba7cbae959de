"""How many programs run at once: as many as there are cores.

More would make every one of them slower than it is, and its clock a measure of the others. Waiting
for a slot costs no budget, and no deadline counts it. Callers may sit on different event loops.
"""

import asyncio
import os
import threading
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from agentgym.deadlines import uncounted
from agentgym.errors import ConfigError


class _Waiter(NamedTuple):
    loop: asyncio.AbstractEventLoop
    turn: "asyncio.Future[None]"
    num_slots: int


class Slots:
    """A first-come, first-served semaphore between event loops."""

    def __init__(self, num: int | None = None) -> None:
        self.num = len(os.sched_getaffinity(0)) if num is None else num
        if self.num < 1:
            raise ConfigError(f"sandbox slots must be at least 1, got {num}")
        self._free = self.num
        self._waiting: deque[_Waiter] = deque()
        self._lock = threading.Lock()

    @asynccontextmanager
    async def take(self, *, alone: bool = False) -> AsyncIterator[float]:
        """Hold one slot, or all of them; gives the seconds waited."""
        num = self.num if alone else 1
        start = time.monotonic()
        await self._acquire(num)
        try:
            yield time.monotonic() - start
        finally:
            self._release(num)

    async def _acquire(self, num: int) -> None:
        loop = asyncio.get_running_loop()
        with self._lock:
            if not self._waiting and self._free >= num:
                self._free -= num
                return
            waiter = _Waiter(loop, loop.create_future(), num)
            self._waiting.append(waiter)
        try:
            with uncounted():
                await waiter.turn
        except asyncio.CancelledError:
            self._give_up(waiter)
            raise

    def _give_up(self, waiter: _Waiter) -> None:
        with self._lock:
            still_waits = waiter in self._waiting
            if still_waits:
                self._waiting.remove(waiter)
        if not still_waits:
            self._release(waiter.num_slots)
        else:
            self._release(0)

    def _release(self, num: int) -> None:
        with self._lock:
            self._free += num
            while self._waiting and self._free >= self._waiting[0].num_slots:
                waiter = self._waiting.popleft()
                if waiter.loop.is_closed():
                    continue
                self._free -= waiter.num_slots
                waiter.loop.call_soon_threadsafe(_wake, waiter.turn)


def _wake(turn: "asyncio.Future[None]") -> None:
    if not turn.done():
        turn.set_result(None)
