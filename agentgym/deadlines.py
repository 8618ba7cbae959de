"""Waiting for foreign coroutines, whether they let themselves be cancelled or not.

A deadline is for the work itself. What it waits for its turn at something that all share is not
counted, or whoever holds that up would fail everybody behind; nor is what has limits of its own.
"""

import asyncio
import threading
import time
from collections.abc import Coroutine, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

T = TypeVar("T")

GRACE_S = 5.0
"""How long cancelled work may take to clean up before it is left behind."""


_LATE_S = 0.02
"""A loop that is less behind than this is not busy."""
_STEP = 0.01
"""Of what is allowed: how much is given at least to work whose waits do not count."""
_left_behind: "set[asyncio.Task[Any]]" = set()
_keeper: threading.Thread | None = None
_abandoned: set[threading.Thread] = set()


def abandon(thread: threading.Thread) -> None:
    """Count a thread that nobody waits for any more as left behind while it lives."""
    _abandoned.add(thread)


def something_is_left_behind() -> bool:
    """Whether work that did not let itself be cancelled is still there.

    Clearing up such a coroutine at the interpreter's exit may run it once more, and never end.
    """
    tasks = any(not task.done() for task in _left_behind)
    return tasks or any(thread.is_alive() for thread in _abandoned)


class _Waits:
    """How long the work of one deadline has waited without being counted."""

    def __init__(self) -> None:
        self._num, self._since, self._ended_s = 0, 0.0, 0.0
        self._lock = threading.Lock()

    @property
    def seconds(self) -> float:
        """Until now, those at the same time counted once."""
        with self._lock:
            return self._ended_s + (time.monotonic() - self._since if self._num else 0.0)

    def begin(self) -> None:
        with self._lock:
            if not self._num:
                self._since = time.monotonic()
            self._num += 1

    def end(self) -> None:
        with self._lock:
            self._num -= 1
            if not self._num:
                self._ended_s += time.monotonic() - self._since


_waits: ContextVar[tuple[_Waits, ...]] = ContextVar("waits", default=())
"""Of all deadlines around."""


@contextmanager
def uncounted() -> Iterator[None]:
    """A wait that ends by itself, such as one for a turn; no deadline of `bounded` counts it."""
    around = _waits.get()
    for waits in around:
        waits.begin()
    try:
        yield
    finally:
        for waits in around:
            waits.end()


class SelfCancelledError(Exception):
    """The work ended in a cancellation that nobody here asked for."""


async def bounded(
    work: Coroutine[Any, Any, T], timeout_s: float, *, grace_s: float | None = None
) -> T:
    """The result of `work`, which is cancelled, and at last left behind, if it takes too long.

    Args:
        work: foreign code.
        timeout_s: longest it may take without what it waits in `uncounted`, on a loop that keeps
            up; on one that does not, up to twice as long.
        grace_s: how long it may clean up after that; `GRACE_S` if left out.

    Raises:
        TimeoutError: it took too long.
        SelfCancelledError: it cancelled itself, or raised `GeneratorExit`, which would close
            whoever waits for it.
    """
    waits = _Waits()
    task = _create_task(work, waits)
    task.add_done_callback(_retrieve)
    try:
        done = await _done_in_time(task, timeout_s, waits)
    except asyncio.CancelledError:
        await _cancel(task, grace_s)
        raise
    if not done:
        await _cancel(task, grace_s)
        raise TimeoutError
    if task.cancelled():
        raise SelfCancelledError("it cancelled itself")
    if isinstance(error := task.exception(), GeneratorExit):
        raise SelfCancelledError("it raised GeneratorExit") from error
    return task.result()


def _create_task(work: Coroutine[Any, Any, T], waits: _Waits) -> "asyncio.Task[T]":
    around = _waits.set((*_waits.get(), waits))
    try:
        return asyncio.create_task(work)
    finally:
        _waits.reset(around)


async def _done_in_time(task: "asyncio.Task[Any]", timeout_s: float, waits: _Waits) -> bool:
    """Whether it is done; where the loop is late to ask, the work was late to go on too.

    What the loop was late by is added, as long as it is late, up to as much again as was allowed,
    and so are waits that do not count, in steps that are worth a look.
    """
    clock = asyncio.get_running_loop().time
    allowed, spare, waited_s = timeout_s, timeout_s, 0.0
    while True:
        ends = clock() + allowed
        await asyncio.wait({task}, timeout=allowed)
        late = min(clock() - ends, spare)
        excused = waits.seconds - waited_s
        if task.done() or (late < _LATE_S and excused <= 0):
            return task.done()
        late, waited_s = max(late, 0.0), waited_s + excused
        step = max(excused, _STEP * timeout_s) if excused > 0 else 0.0
        allowed, spare = late + step, spare - late


async def together(tasks: Iterable["asyncio.Task[T]"]) -> list[T]:
    """Results of all; the first error, or a cancellation, cancels the others and waits for them.

    None is cancelled twice: that would cut its clean-up.
    """
    tasks = list(tasks)
    try:
        return await asyncio.gather(*tasks)
    except asyncio.CancelledError:
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


async def to_its_end(work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, which ends by itself; one cancellation waits until it has."""
    task = asyncio.create_task(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        raise


async def _cancel(task: "asyncio.Task[Any]", grace_s: float | None) -> None:
    task.cancel()
    await asyncio.wait({task}, timeout=GRACE_S if grace_s is None else grace_s)
    if not task.done():
        _leave_behind(task)


def _leave_behind(task: "asyncio.Task[Any]") -> None:
    """Let the loop end without it, and keep it as it is until the process has ended.

    A loop that closes waits for its tasks, and an interpreter that exits closes the coroutines it
    still finds, either of which may never end. What a thread holds is not cleared up.
    """
    global _keeper
    if _keeper is None or not _keeper.is_alive():  # a fork leaves threads behind
        _keeper = threading.Thread(target=_keep, args=[_left_behind], daemon=True)
        _keeper.start()
    _left_behind.add(task)
    task.add_done_callback(_left_behind.discard)
    asyncio.tasks._unregister_task(task)


def _keep(tasks: "set[asyncio.Task[Any]]") -> None:  # noqa: ARG001 - holding them is its use
    threading.Event().wait()


def _retrieve(task: "asyncio.Task[Any]") -> None:
    """So that the error of work left behind is not reported as forgotten."""
    if not task.cancelled():
        task.exception()
