"""An event loop in a thread of its own, for a caller that is not async.

The trainer's loop is sync and the agent loop is async. Interrupting the caller cancels what runs
here, once, and waits for its clean-up, so that Ctrl-C leaves no env open. A second cancellation
would cut the closing of an env; only what outlasts `GRACE_S` gets one.
"""

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")

GRACE_S = 10.0
"""How long cancelled work may take to clean up."""
STRAGGLER_S = 2.0
"""How long what did not end by then is still waited for, after one more cancellation."""


class LoopThread:
    """Runs coroutines one after another; close it to end the thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="agentgym-loop", daemon=True
        )
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """The coroutine's result, or its exception; an interrupt cancels it first."""
        over = threading.Event()
        future = asyncio.run_coroutine_threadsafe(_announced(coroutine, over), self._loop)
        try:
            return future.result()
        except BaseException:
            if future.cancel() and not over.wait(GRACE_S):
                self._cancel_stragglers()
            raise

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> "Future[T]":
        """Start the coroutine; whoever waits for it also cancels it."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

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


async def _announced(coroutine: Coroutine[Any, Any, T], over: threading.Event) -> T:
    """Say when it is over: a cancelled future says so at once. An exit would end the loop."""
    try:
        return await coroutine
    except (SystemExit, KeyboardInterrupt) as error:
        raise RuntimeError(f"{type(error).__name__} on the event loop: {error}") from error
    finally:
        over.set()


async def _cancel_others() -> None:
    """Cancel every other task of this loop and wait until they have cleaned up."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    if others:
        await asyncio.wait(others, timeout=STRAGGLER_S)
    await asyncio.get_running_loop().shutdown_asyncgens()
