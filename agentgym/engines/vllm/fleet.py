"""The servers that share one policy."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from agentgym.deadlines import together
from agentgym.engines.http import FailedCallError, JsonClient
from agentgym.engines.vllm.health import Facts
from agentgym.engines.vllm.watch import Watch

T = TypeVar("T")


@dataclass(eq=False, slots=True)
class Server:
    """One of them."""

    number: int
    client: JsonClient
    watch: Watch
    facts: Facts | None = None
    is_stale: bool = False
    """It has other weights than it should; only an update helps."""

    must_resume: bool = False
    """It could not be told to go on after an update."""

    @property
    def url(self) -> str:
        """Without a path."""
        return self.client.url

    async def resume(self, timeout_s: float) -> None:
        """Let it go on sampling.

        Raises:
            EngineError: it was not told.
        """
        await self.client.call("POST", "/resume", timeout_s=timeout_s)
        self.must_resume = False


async def on_all(servers: Sequence[Server], action: Callable[[Server], Awaitable[T]]) -> list[T]:
    """Results by server; the first error cancels the others."""

    async def run(server: Server) -> T:
        return await action(server)

    return await together([asyncio.ensure_future(run(server)) for server in servers])


async def outcomes(
    servers: Sequence[Server], action: Callable[[Server], Awaitable[T]]
) -> list[T | BaseException]:
    """Results, or what was raised, by server."""

    async def run(server: Server) -> T:
        return await action(server)

    return await asyncio.gather(*[run(server) for server in servers], return_exceptions=True)


def said(error: FailedCallError) -> str:
    """What a server says is wrong."""
    try:
        content: Any = json.loads(error.text)["error"]
    except (ValueError, KeyError, TypeError):
        return error.text
    return str(content["message"]) if isinstance(content, dict) else str(content)
