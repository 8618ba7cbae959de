"""An event loop in a thread of its own, for a caller that is not async.

The trainer's loop is sync and the agent loop is async. Interrupting the caller cancels what it
waits for here, once, and waits for its clean-up, so that Ctrl-C leaves no env open. A second
cancellation would cut the closing of an env; only what outlasts `GRACE_S` gets one.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError
from contextlib import suppress
from typing import Any, Generic, TypeVar

T = TypeVar("T")

GRACE_S = 10.0
"""How long cancelled work may take to clean up."""
STRAGGLER_S = 2.0
"""How long what did not end by then is still waited for, after one more cancellation."""


class Running(Generic[T]):
    """Work on the loop of another thread; made by `LoopThread.start`."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        coroutine: Coroutine[Any, Any, T],
        give_up: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._give_up = give_up
        self._coroutine = coroutine
        self._over = threading.Event()
        self._task: asyncio.Task[T] | None = None
        self._is_cancelled = False
        loop.call_soon_threadsafe(self._begin)

    @property
    def is_over(self) -> bool:
        """Whether `result` would return at once."""
        return self._over.is_set()

    def result(self) -> T:
        """Its result, or its exception; an interrupt of the wait cancels it first.

        Raises:
            concurrent.futures.CancelledError: it was cancelled.
        """
        try:
            self._over.wait()
        except BaseException:
            self.cancel()
            if not self.ended(GRACE_S):
                self._give_up()
            raise
        assert self._task is not None
        try:
            return self._task.result()
        except asyncio.CancelledError as error:
            raise CancelledError from error

    def cancel(self) -> None:
        """Ask it to clean up and end; once, and without waiting for it."""
        if not self._is_cancelled and not self.is_over:
            self._is_cancelled = True
            self._loop.call_soon_threadsafe(self._cancel)

    def ended(self, timeout_s: float) -> bool:
        """Whether it is over, within the given time."""
        return self._over.wait(timeout_s)

    def _begin(self) -> None:
        self._task = self._loop.create_task(_without_exits(self._coroutine))
        self._task.add_done_callback(self._end)

    def _cancel(self) -> None:
        assert self._task is not None
        self._task.cancel()

    def _end(self, task: "asyncio.Task[T]") -> None:
        if not task.cancelled():
            task.exception()  # nobody may ever ask for it, which is no news
        self._coroutine.close()  # it may have been cancelled before its first step
        self._over.set()


class LoopThread:
    """Runs coroutines for other threads; close it to end the thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._running: list[Running[Any]] = []
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="agentgym-loop", daemon=True
        )
        self._thread.start()

    @property
    def is_busy(self) -> bool:
        """Whether something that was started is not over."""
        return any(not running.is_over for running in self._running)

    def start(self, coroutine: Coroutine[Any, Any, T]) -> Running[T]:
        """Begin a coroutine whose result is asked for later, or never."""
        self._running = [running for running in self._running if not running.is_over]
        running = Running(self._loop, coroutine, self._cancel_stragglers)
        self._running.append(running)
        return running

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """The coroutine's result, or its exception; an interrupt cancels it first."""
        return self.start(coroutine).result()

    def drop(self) -> None:
        """Cancel whatever was started and is not over, and let it clean up."""
        for running in self._running:
            running.cancel()
        ends = time.monotonic() + GRACE_S
        left = [r for r in self._running if not r.ended(max(ends - time.monotonic(), 0.0))]
        self._running = []
        if left:
            self._cancel_stragglers()

    def close(self) -> None:
        """Cancel what is left, end the thread; idempotent."""
        if self._loop.is_closed():
            return
        self._cancel_stragglers()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(GRACE_S)
        if not self._thread.is_alive():
            self._loop.close()

    def _cancel_stragglers(self) -> None:
        with suppress(TimeoutError):
            asyncio.run_coroutine_threadsafe(_cancel_others(), self._loop).result(GRACE_S)


async def _without_exits(coroutine: Coroutine[Any, Any, T]) -> T:
    """An exit would end the loop, and whoever waits would wait for ever."""
    try:
        return await coroutine
    except (SystemExit, KeyboardInterrupt) as error:
        raise RuntimeError(f"{type(error).__name__} on the event loop: {error}") from error


async def _cancel_others() -> None:
    """Cancel every other task of this loop and wait until they have cleaned up."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    if others:
        await asyncio.wait(others, timeout=STRAGGLER_S)
    await asyncio.get_running_loop().shutdown_asyncgens()
