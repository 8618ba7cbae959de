"""The servers that share one policy."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from agentgym.deadlines import together
from agentgym.engines.http import JsonClient, UnreachableError
from agentgym.engines.vllm.health import Facts
from agentgym.engines.vllm.presence import Presence
from agentgym.engines.vllm.watch import Watch

T = TypeVar("T")

_FROM_FINE_TO_COARSE = ("float64", "float32", "float16", "bfloat16")


@dataclass(eq=False, slots=True)
class Server:
    """One of them."""

    number: int
    client: JsonClient
    presence: Presence
    watch: Watch
    facts: Facts | None = None
    found: str | None = None
    """Label of the weights that it has instead of those it should; only an update helps."""
    must_resume: bool = False
    """It could not be told to go on after an update."""

    @property
    def url(self) -> str:
        """Without a path."""
        return self.client.url

    @property
    def is_stale(self) -> bool:
        """It has other weights than it should."""
        return self.found is not None

    async def resume(self, timeout_s: float) -> None:
        """Let it go on sampling.

        Raises:
            EngineError: it was not told.
        """
        await self.client.call("POST", "/resume", timeout_s=timeout_s)
        self.must_resume = False


async def on_all(servers: Sequence[Server], action: Callable[[Server], Awaitable[T]]) -> list[T]:
    """Results by server; the first error cancels the others, and says whose it is."""
    return await together([asyncio.ensure_future(_on_one(s, action)) for s in servers])


async def outcomes(
    servers: Sequence[Server], action: Callable[[Server], Awaitable[T]]
) -> list[T | BaseException]:
    """Results, or what was raised, by server."""
    running = [_on_one(server, action) for server in servers]
    return await asyncio.gather(*running, return_exceptions=True)


async def while_there(servers: Sequence[Server], work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, which may keep servers busy for long.

    Raises:
        UnreachableError: one was silent for too long meanwhile.
    """
    task = asyncio.ensure_future(work)
    watches = [asyncio.ensure_future(server.presence.until_gone()) for server in servers]
    try:
        done, _ = await asyncio.wait([task, *watches], return_when=asyncio.FIRST_COMPLETED)
        if task not in done:
            await done.pop()
        return await task
    finally:
        for each in (task, *watches):
            each.cancel()
        await asyncio.gather(task, *watches, return_exceptions=True)


async def _on_one(server: Server, action: Callable[[Server], Awaitable[T]]) -> T:
    try:
        return await action(server)
    except UnreachableError as error:
        if server.url in str(error):
            raise
        raise UnreachableError(f"{server.url}: {error}") from error


def coarsest(dtypes: Iterable[str]) -> str:
    """What keeps the fewest digits; one that nobody knows keeps fewer than all others."""
    ranks = {dtype: rank for rank, dtype in enumerate(_FROM_FINE_TO_COARSE)}
    return max(dtypes, key=lambda dtype: ranks.get(dtype, len(ranks)))
