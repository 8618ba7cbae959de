"""Ends the turns that a server would keep for ever.

A turn may rightly take minutes, so its own deadline says little about a server that hangs: while
turns run, the server is asked for the version of its weights, which only a working engine core
answers.
"""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from agentgym.engines.http import JsonClient, UnreachableError
from agentgym.engines.vllm.endable import Endable
from agentgym.engines.vllm.health import label_of
from agentgym.engines.vllm.presence import Presence
from agentgym.engines.vllm.settings import Deadlines
from agentgym.errors import EngineError

T = TypeVar("T")

_LONGEST_STEP_S = 5.0


@dataclass(eq=False, slots=True)
class _Turn:
    work: Endable[Any]
    left_s: float


class Watch:
    """Over the turns of one server.

    Args:
        client: the server.
        deadlines: `turn_s` and `hung_s` count.
        presence: of the server; is told what is found.
    """

    def __init__(self, client: JsonClient, deadlines: Deadlines, presence: Presence) -> None:
        self._client = client
        self._presence = presence
        self._deadlines = deadlines
        self._turns: set[_Turn] = set()
        self._watcher: asyncio.Task[None] | None = None
        self._num_pauses = 0

    @property
    def is_paused(self) -> bool:
        """Weights are under way."""
        return self._num_pauses > 0

    def pause(self) -> None:
        """Weights are under way: neither the server nor a turn is expected to go on."""
        self._num_pauses += 1

    def resume(self) -> None:
        """They have come."""
        self._num_pauses -= 1

    async def turn(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`, which is cancelled with whoever waits for it.

        Raises:
            UnreachableError: the server hangs.
            EngineError: it took too long.
        """
        self._start()
        endable = Endable(work)
        turn = _Turn(endable, self._deadlines.turn_s)
        self._turns.add(turn)
        try:
            return await endable.result()
        finally:
            self._turns.discard(turn)
            if not self._turns and self._watcher is not None:
                self._watcher.cancel()
                self._watcher = None

    def _start(self) -> None:
        loop = asyncio.get_running_loop()
        if self._watcher is not None and self._watcher.get_loop() is not loop:
            self._turns.clear()  # with their loop
            self._watcher = None
        if self._watcher is None or self._watcher.done():
            self._watcher = loop.create_task(self._watch())

    async def _watch(self) -> None:
        step_s = min(self._deadlines.hung_s / 4, self._deadlines.turn_s / 4, _LONGEST_STEP_S)
        while True:
            await asyncio.sleep(step_s)
            if self._num_pauses:
                continue
            self._end_late(step_s)
            asked = set(self._turns)
            failure = await self._find_hung()
            if failure is not None and not self._num_pauses:
                for turn in asked & self._turns:
                    turn.work.end(failure)

    def _end_late(self, step_s: float) -> None:
        for turn in self._turns:
            turn.left_s -= step_s
            if turn.left_s <= 0:
                limit = f"{self._deadlines.turn_s:g} s"
                turn.work.end(EngineError(f"{self._client.url}: no answer within {limit}"))

    async def _find_hung(self) -> UnreachableError | None:
        """Asked twice: our own loop may have been busy for as long as the answer was due."""
        failure = None
        for _ in range(2):
            try:
                await label_of(self._client, self._deadlines.hung_s / 2)
            except UnreachableError as error:
                if not self._num_pauses:
                    self._presence.lost(str(error))
                failure = UnreachableError(f"{self._client.url} hangs: {error}")
            except EngineError:
                return None
            else:
                self._presence.back()
                return None
        return failure
