"""The one thread in which an engine's model runs, and the way back from it to an event loop.

The thread owns all state of the engine; everybody else posts commands, which it runs between two
steps. So nothing is locked, tools and environments go on while the model computes, and requests may
come from any event loop, also from several one after the other.
"""

import asyncio
import queue
import threading
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

from agentgym.engines.base import Generation
from agentgym.errors import AgentGymError, EngineError, boundary

Command = Callable[[], None]
T = TypeVar("T")

_GATHER_S = 0.0005
"""An idle engine that gets a request waits this long for the next: one prefill serves many."""


class Reply(Generic[T]):
    """The awaiting side of a request, on the event loop it was made on."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.future: asyncio.Future[T] = self._loop.create_future()

    def give(self, outcome: T | AgentGymError) -> None:
        """Resolve the future from any thread; a loop that is closed is left alone."""
        try:
            self._loop.call_soon_threadsafe(self._settle, outcome)
        except RuntimeError:
            if not self._loop.is_closed():
                raise

    def _settle(self, outcome: T | AgentGymError) -> None:
        if self.future.done():
            return
        if isinstance(outcome, AgentGymError):
            self.future.set_exception(outcome)
        else:
            self.future.set_result(outcome)


class Pending(Protocol):
    """A turn to sample; belongs to the thread, but for its `reply`."""

    reply: Reply[Generation]

    @property
    def outcome(self) -> Generation | AgentGymError | None:
        """Set when the turn is over."""
        ...


class Core(Protocol):
    """What the worker drives; only called from its thread."""

    @property
    def is_busy(self) -> bool:
        """Whether a request waits or runs."""
        ...

    @property
    def is_running(self) -> bool:
        """Whether a request runs."""
        ...

    def step(self) -> Sequence[Pending]:
        """Sample on; returns the requests that have their outcome."""
        ...

    def rest(self) -> None:
        """Nothing is left to do: give the model back to its owner. Idempotent."""
        ...

    def abandon(self) -> Sequence[Pending]:
        """Drop every cache and hand back every request, those included that have an outcome."""
        ...


class Worker:
    """Runs commands and steps of a core, starting with the first command."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._inbox: queue.SimpleQueue[Command] = queue.SimpleQueue()
        self._lock = threading.Lock()
        """Between the check that the worker is open and the post."""
        self._thread: threading.Thread | None = None
        self._is_closed = False
        self._is_ending = False
        self._on_end: Command = self._end

    def post(self, command: Command) -> bool:
        """Run `command` on the thread, before its next step; False if the worker is closed."""
        with self._lock:
            if self._is_closed:
                return False
            if self._thread is None:
                name = "agentgym-engine"
                self._thread = threading.Thread(target=self._run, name=name, daemon=True)
                self._thread.start()
            self._inbox.put(command)
            return True

    def poll(self) -> bool:
        """For the core, within a long step: run what was posted; False if it should give up."""
        self._take_commands(wait=False)
        return not self._is_ending

    def close(self, on_end: Command) -> bool:
        """Fail what is in flight and end the thread; later posts are refused.

        Returns:
            Whether `on_end` will be called, as the thread's last act: there is a thread, and this
            is the first call.
        """
        with self._lock:
            if self._is_closed or self._thread is None:
                self._is_closed = True
                return False
            self._is_closed = True
            self._on_end = on_end
            self._inbox.put(self._end)
            return True

    def join(self) -> None:
        """Wait for the thread's end."""
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        self._take_commands(wait=True)
        while not self._is_ending:
            self._guarded(self._step)
            self._take_commands(wait=True)
        self._fail("the engine was closed")
        self._on_end()

    def _end(self) -> None:
        self._is_ending = True

    def _take_commands(self, *, wait: bool) -> None:
        """Run the commands that are there; without work, `wait` for one."""
        while not self._is_ending:
            if not self._core.is_busy:
                self._core.rest()
            try:
                command = self._inbox.get(timeout=self._patience() if wait else 0.0)
            except queue.Empty:
                return
            self._guarded(command)

    def _patience(self) -> float | None:
        if not self._core.is_busy:
            return None
        return 0.0 if self._core.is_running else _GATHER_S

    def _step(self) -> None:
        finished = self._core.step()
        if not self._core.is_busy:
            self._core.rest()
        for request in finished:
            assert request.outcome is not None
            request.reply.give(request.outcome)

    def _guarded(self, action: Command) -> None:
        try:
            with boundary(EngineError, "the engine failed"):
                action()
        except AgentGymError as error:
            self._fail(str(error))

    def _fail(self, reason: str) -> None:
        abandoned = self._core.abandon()
        self._core.rest()
        for request in abandoned:
            request.reply.give(request.outcome or EngineError(reason))
