"""Between blocking code and event loops, in threads that never keep the process alive.

The default executor joins its threads at exit, so one call that never returns would hang the
interpreter. These threads are daemons: whoever stops waiting for one leaves it behind.
"""

import asyncio
import contextvars
import queue
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")
_Job = Callable[[], None]


async def in_thread(function: Callable[[], T]) -> T:
    """What the function returns, from a daemon thread that it has to itself."""
    try:
        worker = _idle.pop()
    except IndexError:
        worker = Worker()
    future = worker.submit(function)
    try:
        return await asyncio.wrap_future(future)
    finally:
        if future.done() and len(_idle) < _MAX_IDLE:
            _idle.append(worker)
        else:
            worker.stop()


class Worker:
    """One daemon thread for calls that must share a thread, run in the order they come.

    The thread starts with the first call and ends with `stop` or with its worker object.
    """

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def __reduce__(self) -> tuple[type["Worker"], tuple[()]]:
        """A copy has a thread of its own."""
        return type(self), ()

    async def run(self, function: Callable[[], T]) -> T:
        """What the function returns; if cancelled while it waits its turn, it never runs."""
        return await asyncio.wrap_future(self.submit(function))

    async def run_last(self, function: Callable[[], T]) -> T:
        """Like `run`, then stop; runs even if nobody waits for it any more."""
        future = self.submit(function)
        self.stop()
        return await asyncio.shield(asyncio.wrap_future(future))

    def stop(self) -> None:
        """End the thread after the calls that were handed in; a later call starts a new one."""
        if self._thread is not None:
            self._jobs.put(None)
            self._jobs = queue.SimpleQueue()
            self._thread = None

    def submit(self, function: Callable[[], T]) -> Future[T]:
        """Hand in a call without waiting for it."""
        future, job = _job(function)
        if self._thread is None or not self._thread.is_alive():  # a fork leaves threads behind
            self._jobs = queue.SimpleQueue()
            name = "agentgym-worker"
            self._thread = threading.Thread(
                target=_serve, args=[self._jobs], name=name, daemon=True
            )
            ending = weakref.finalize(self, self._jobs.put, None)
            ending.atexit = False  # a thread woken while the interpreter ends can abort it
            self._thread.start()
        self._jobs.put(job)
        return future


_idle: list[Worker] = []
_MAX_IDLE = 256


def run_coroutine(coroutine: Coroutine[Any, Any, T]) -> T:
    """The coroutine's result for a synchronous caller, with or without a loop running around it.

    All coroutines share one background loop, so that connections they open stay usable.

    Raises:
        RuntimeError: called on the background loop itself, which would wait for itself.
    """
    loop = _background.loop()
    if threading.current_thread() is _background.thread:
        coroutine.close()
        raise RuntimeError("a synchronous method was called from async code: await the async one")
    future: Future[T] = Future()
    waiting = asyncio.run_coroutine_threadsafe(_deliver(coroutine, future), loop)
    try:
        return future.result()
    finally:
        waiting.cancel()


class _Background:
    """The loop behind `run_coroutine`; a forked child starts its own."""

    def __init__(self) -> None:
        self.thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = threading.Lock()

    def loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None or self.thread is None or not self.thread.is_alive():
                self._loop = asyncio.new_event_loop()
                self.thread = threading.Thread(
                    target=self._loop.run_forever, name="agentgym-loop", daemon=True
                )
                self.thread.start()
            return self._loop


_background = _Background()


def _serve(jobs: "queue.SimpleQueue[_Job | None]") -> None:
    while (job := jobs.get()) is not None:
        job()
        del job


def _job(function: Callable[[], T]) -> tuple[Future[T], _Job]:
    future: Future[T] = Future()
    context = contextvars.copy_context()

    def job() -> None:
        if future.set_running_or_notify_cancel():
            with _delivering_errors(future):
                future.set_result(context.run(function))

    return future, job


async def _deliver(coroutine: Coroutine[Any, Any, T], future: Future[T]) -> None:
    future.set_running_or_notify_cancel()
    with _delivering_errors(future):
        future.set_result(await coroutine)


@contextmanager
def _delivering_errors(future: Future[Any]) -> Iterator[None]:
    """Whatever is raised ends the wait for the future instead of this thread."""
    try:
        yield
    except (StopIteration, GeneratorExit) as error:  # whoever awaits it would not be woken, or end
        future.set_exception(RuntimeError(f"raised {error!r}"))
    except BaseException as error:  # noqa: BLE001 - raised again where the result is awaited
        future.set_exception(error)
