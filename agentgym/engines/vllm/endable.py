"""Work that others may end with an error of their own, in whoever waits for it."""

import asyncio
from collections.abc import Coroutine
from typing import Any, Generic, TypeVar

from agentgym.errors import EngineError

T = TypeVar("T")


class Endable(Generic[T]):
    """Runs from now on.

    Args:
        work: what to run.
    """

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        self._task = asyncio.ensure_future(work)
        self._failure: EngineError | None = None

    def end(self, failure: EngineError) -> None:
        """Cancel it; of several failures the first is raised."""
        self._failure = self._failure or failure
        self._task.cancel()

    async def over(self) -> None:
        """Wait for its last act; to be called on its event loop."""
        await asyncio.wait({self._task})

    async def result(self) -> T:
        """Of the work, which is cancelled with whoever waits for it.

        Raises:
            EngineError: it was ended.
        """
        waiting = asyncio.current_task()
        assert waiting is not None
        num_cancelled = waiting.cancelling()
        try:
            return await self._task
        except asyncio.CancelledError:
            if self._failure is None or waiting.cancelling() > num_cancelled:
                raise
            raise self._failure from None
        finally:
            self._task.cancel()
