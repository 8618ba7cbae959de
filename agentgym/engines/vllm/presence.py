"""Whether a server answers: how long it is waited for, and what people are told meanwhile.

An outage is one for all who need the server: it begins with the first that finds it silent, and all
give up at the same time, however many come after one another.
"""

import asyncio
import logging
import math
import time
from typing import NoReturn

from agentgym.engines.http import JsonClient, UnreachableError
from agentgym.engines.vllm.health import until_alive, until_answering

logger = logging.getLogger(__name__)

_QUIET_S = 5.0
"""A server that is silent for less is no news."""


class Presence:
    """Of one server.

    Args:
        client: the server.
        gone_s: how long it is waited for.
    """

    def __init__(self, client: JsonClient, gone_s: float) -> None:
        self._client = client
        self._gone_s = gone_s
        self._ends: float | None = None
        """When nobody waits any more."""
        self._found: tuple[float, str | UnreachableError] = (-math.inf, "")
        """What the last one to wait found, and when."""
        self._guard: tuple[asyncio.AbstractEventLoop, asyncio.Lock] | None = None

    def lost(self, reason: str) -> None:
        """It did not answer: say so, unless that is known."""
        if self._ends is None:
            self._ends = time.monotonic() + self._gone_s
            logger.warning(
                "%s does not answer (%s); waiting up to %g s for it: if it has ended, start it "
                "again with `agentgym serve`",
                self._client.url,
                reason,
                self._gone_s,
            )

    def back(self) -> None:
        """It answers: say so, if it did not."""
        if self._ends is not None:
            self._ends = None
            logger.warning("%s answers again", self._client.url)

    async def returned(self) -> str:
        """Wait until it answers; the label of its weights.

        Of those that wait at the same time, one asks for all.

        Raises:
            UnreachableError: it did not come back in time.
            EngineError: it does not let us in.
        """
        since = time.monotonic()
        async with self._lock():
            at, found = self._found
            if at < since:
                found = await self._waited()
                self._found = time.monotonic(), found
        if isinstance(found, UnreachableError):
            raise UnreachableError(str(found))
        return found

    async def _waited(self) -> str | UnreachableError:
        try:
            label = await until_answering(self._client, min(_QUIET_S, self._left_s))
        except UnreachableError as error:
            self.lost(_reason(error))
            try:
                label = await until_answering(self._client, self._left_s)
            except UnreachableError as last:
                return self._given_up(last)
        self.back()
        return label

    async def until_gone(self) -> NoReturn:
        """Look after a server whose core may be busy for long, until this is cancelled.

        Raises:
            UnreachableError: it was silent for too long.
        """
        while True:
            await asyncio.sleep(min(_QUIET_S, self._gone_s / 4))
            try:
                await until_alive(self._client, min(_QUIET_S, self._left_s))
            except UnreachableError as error:
                self.lost(_reason(error))
                try:
                    await until_alive(self._client, self._left_s)
                except UnreachableError as last:
                    raise self._given_up(last) from last
                self.back()

    def _given_up(self, last: UnreachableError) -> UnreachableError:
        limit = f"{self._gone_s:g} s"
        return UnreachableError(f"{self._client.url} was not there within {limit}: {_reason(last)}")

    @property
    def _left_s(self) -> float:
        return self._gone_s if self._ends is None else max(self._ends - time.monotonic(), 0.0)

    def _lock(self) -> asyncio.Lock:
        """Of this event loop."""
        loop = asyncio.get_running_loop()
        if self._guard is None or self._guard[0] is not loop:
            self._guard = loop, asyncio.Lock()
        return self._guard[1]


def _reason(error: UnreachableError) -> str:
    return str(error.__cause__ or error)
