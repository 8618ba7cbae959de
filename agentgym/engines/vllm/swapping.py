"""The last step of a weight update: every server swaps, and which of them did is found out."""

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from agentgym.engines.http import FailedCallError, UnreachableError
from agentgym.engines.vllm.fleet import Server, outcomes, while_there
from agentgym.engines.vllm.health import label_of
from agentgym.engines.vllm.refusals import REFUSED
from agentgym.errors import EngineError

_STEP_S = 0.25


@dataclass(slots=True)
class Verdict:
    """What servers have after it, by URL."""

    swapped: list[str] = field(default_factory=list)
    old: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    failure: BaseException | None = None
    """The first one."""

    def place(self, is_new: object) -> list[str]:
        """Where a server belongs; `True` and `False` are known."""
        if is_new is True:
            return self.swapped
        return self.old if is_new is False else self.unknown

    def __str__(self) -> str:
        """For the one who must act."""
        return (
            f"new weights at {_listed(self.swapped)}, old ones at {_listed(self.old)}, not known "
            f"at {_listed(self.unknown)}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Swap:
    """From one label to another."""

    before: str
    label: str
    timeout_s: float
    settle_s: float
    """How long a server whose answer was lost is asked what it has."""

    async def run(self, servers: list[Server]) -> Verdict:
        """Swap at all servers; never raises for one of them."""
        ends = await outcomes(servers, self._finish)
        found = await outcomes(servers, lambda server: self._is_new(server, ends[server.number]))
        verdict = Verdict()
        for server, end, is_new in zip(servers, ends, found, strict=True):
            verdict.place(is_new).append(server.url)
            if isinstance(end, BaseException) and verdict.failure is None:
                verdict.failure = end
        return verdict

    async def _finish(self, server: Server) -> Any:
        body = {"weight_version": self.label}
        call = server.client.call("POST", "/finish_weight_update", body, timeout_s=self.timeout_s)
        return await while_there([server], call)

    async def _is_new(self, server: Server, end: object) -> bool | None:
        """Whether the server has the new weights; `None` if that cannot be told."""
        if not isinstance(end, BaseException):
            return True
        if isinstance(end, FailedCallError) and REFUSED in end.text:
            return False
        if not isinstance(end, UnreachableError) or self.label == self.before:
            return None
        stops = time.monotonic() + self.settle_s
        while (left_s := stops - time.monotonic()) > 0:
            with suppress(EngineError):
                if await label_of(server.client, left_s) == self.label:
                    return True
            await asyncio.sleep(_STEP_S)
        return None


def _listed(urls: list[str]) -> str:
    return ", ".join(urls) or "no server"
