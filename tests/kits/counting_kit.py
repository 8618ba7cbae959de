"""Real sandboxes that say whether they have been closed."""

import asyncio
from collections.abc import Sequence

from local_kit import provider

from agentgym.errors import SandboxError
from agentgym.tools.sandbox.base import (
    Case,
    ExecResult,
    ProbeReport,
    Sandbox,
    SandboxSpec,
)
from agentgym.tools.sandbox.limits import Limits


class Counting:
    """The real provider, with what it has open.

    Args:
        delay_s: how long opening takes longer.
        fails: how many times opening fails before it works.
    """

    def __init__(self, *, delay_s: float = 0.0, fails: int = 0) -> None:
        self.delay_s, self.fails = delay_s, fails
        self.backend, self.level = provider().backend, provider().level
        self.opened: list[Closing] = []
        self.has_opened = asyncio.Event()

    @property
    def num_open(self) -> int:
        return sum(not sandbox.closed for sandbox in self.opened)

    async def probe(self) -> ProbeReport:
        raise NotImplementedError

    async def open(self, spec: SandboxSpec | None = None) -> Sandbox:
        await asyncio.sleep(self.delay_s)
        if self.fails:
            self.fails -= 1
            raise SandboxError("there are no sandboxes today")
        self.opened.append(Closing(await provider().open(spec)))
        self.has_opened.set()
        return self.opened[-1]

    async def aclose(self) -> None:
        """Nothing of its own."""


class Closing:
    """A real sandbox that says whether it has been closed."""

    def __init__(self, inner: Sandbox) -> None:
        self.inner, self.closed, self.dead = inner, False, False
        self.backend, self.level, self.id = inner.backend, inner.level, inner.id

    async def run_cell(self, code: str, *, limits: Limits | None = None) -> ExecResult:
        if self.dead:
            raise SandboxError("it is gone")
        return await self.inner.run_cell(code, limits=limits)

    async def run_tests(
        self, program: str, cases: Sequence[Case], *, limits: Limits | None = None
    ) -> list[ExecResult]:
        return await self.inner.run_tests(program, cases, limits=limits)

    async def run_shell(
        self, command: str, *, stdin: str = "", limits: Limits | None = None
    ) -> ExecResult:
        return await self.inner.run_shell(command, stdin=stdin, limits=limits)

    async def write_file(self, path: str, data: bytes) -> None:
        await self.inner.write_file(path, data)

    async def read_file(self, path: str, *, max_bytes: int = 1_048_576) -> bytes:
        return await self.inner.read_file(path, max_bytes=max_bytes)

    async def reset(self) -> None:
        await self.inner.reset()

    async def close(self) -> None:
        await self.inner.close()
        self.closed = True
