"""The sandbox of one trajectory, opened when something in it first asks for one.

Most trajectories never run code. Those that do share one handle between their tools and their
scoring, so that there is one sandbox and one place that ends it, whoever was cancelled meanwhile.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, NoReturn

from agentgym.deadlines import SelfCancelledError, bounded
from agentgym.errors import ConfigError, EnvError, SandboxError, boundary
from agentgym.tools.sandbox.base import Sandbox, SandboxProvider, SandboxSpec, isolation_of

Prepare = Callable[[Sandbox], Awaitable[None]]
_CLOSE_S = 10.0


class LazySandbox:
    """At most one open sandbox; ended by `aclose`, or by leaving `async with`.

    Args:
        spec: what it is opened with.
        provider: where it comes from; the one that this process shares if left out.
        prepare: what is done with it before anybody gets it, such as writing files.
    """

    def __init__(
        self,
        spec: SandboxSpec | None = None,
        *,
        provider: SandboxProvider | None = None,
        prepare: Prepare | None = None,
    ) -> None:
        self.spec = spec or SandboxSpec()
        self._provider = provider
        self._prepare = prepare
        self._opening: asyncio.Task[Sandbox] | None = None
        self._over = False

    async def get(self) -> Sandbox:
        """The sandbox; whoever asks while it is being opened waits for the same one.

        Raises:
            SandboxError: there is none to be had, or the trajectory has ended.
        """
        if self._over:
            raise SandboxError("the sandbox of this trajectory has been closed")
        if self._opening is None or self._opening.cancelled():
            self._opening = asyncio.create_task(self._open())
            self._opening.add_done_callback(_retrieve)
        if self._opening.done():  # perhaps on another loop
            return self._opening.result()
        return await asyncio.shield(self._opening)

    @property
    def opened(self) -> Sandbox | None:
        """The sandbox, if there is one by now."""
        return None if self._opening is None else _result(self._opening)

    @property
    def report(self) -> dict[str, Any]:
        """For the record of the trajectory: back end and level; empty if none was opened."""
        return {} if self.opened is None else {"sandbox": isolation_of(self.opened)}

    @property
    def needs_closing(self) -> bool:
        """Whether a sandbox is open or being opened."""
        return self._opening is not None and not self._over

    async def aclose(self) -> None:
        """End the sandbox; a second call does nothing, and a cancellation waits until it is done.

        One that does not end within ten seconds is left to its provider.
        """
        if self._over or self._opening is None:
            self._over = True
            return
        self._over = True
        closing = asyncio.create_task(self._close(self._opening))
        cancelled = False
        while not closing.done():
            try:
                await asyncio.wait({closing})
            except asyncio.CancelledError:
                cancelled = True
        closing.result()
        if cancelled:
            raise asyncio.CancelledError

    async def __aenter__(self) -> "LazySandbox":
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def _open(self) -> Sandbox:
        if self._provider is None:
            from agentgym.tools.sandbox.shared import shared_provider

            self._provider = await shared_provider()
        sandbox = await self._provider.open(self.spec)
        if self._prepare is None:
            return sandbox
        try:
            with boundary(EnvError, "prepare_sandbox"):
                await self._prepare(sandbox)
        except BaseException:
            await sandbox.close()
            raise
        return sandbox

    async def _close(self, opening: "asyncio.Task[Sandbox]") -> None:
        if not opening.done():
            opening.cancel()
            await asyncio.wait({opening}, timeout=_CLOSE_S)
        sandbox = _result(opening)
        if sandbox is not None:
            with suppress(TimeoutError, SelfCancelledError):
                await bounded(sandbox.close(), _CLOSE_S)


class _NoSandbox(LazySandbox):
    """Where there is no trajectory that could end it."""

    async def get(self) -> NoReturn:
        raise ConfigError(
            "this tool needs a sandbox, and its context has none: use it in a ToolEnv, or call it "
            "with ToolContext(sandbox=LazySandbox()) and close that"
        )


NO_SANDBOX: LazySandbox = _NoSandbox()
"""Refuses; for contexts outside a trajectory."""


def _result(opening: "asyncio.Task[Sandbox]") -> Sandbox | None:
    if not opening.done() or opening.cancelled() or opening.exception() is not None:
        return None
    return opening.result()


def _retrieve(opening: "asyncio.Task[Sandbox]") -> None:
    """So that an error nobody waited for is not reported as forgotten."""
    if not opening.cancelled():
        opening.exception()
