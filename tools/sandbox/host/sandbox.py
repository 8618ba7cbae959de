"""A sandbox on this machine: the protocol over a connection that may break.

A sandbox that dies in a call says nothing of who killed it. The call is repeated once, alone on the
machine and in a fresh sandbox in which everything that came before has been done again: if it dies
again, the code did it; else it was the machine.
"""

import asyncio
import base64
import uuid
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

from agentgym.deadlines import uncounted
from agentgym.errors import SandboxError, ToolError
from agentgym.tools.sandbox.base import (
    Case,
    ExecResult,
    Level,
    Outcome,
    SandboxSpec,
    Script,
)
from agentgym.tools.sandbox.host import requests
from agentgym.tools.sandbox.host.connection import LostError
from agentgym.tools.sandbox.host.slots import Slots
from agentgym.tools.sandbox.host.verdict import judge, read_evidence
from agentgym.tools.sandbox.inside.meter import MAX_STRETCH
from agentgym.tools.sandbox.limits import Limits

_SPARE_S = 15.0


class Link(Protocol):
    """A connection to a runner, wherever it is; see `connection.Connection`."""

    @property
    def is_alive(self) -> bool: ...

    async def ask(
        self,
        requests: Sequence[requests.Request],
        num_answers: int,
        timeout_s: float,
        take: Callable[[dict[str, Any]], None],
    ) -> None: ...

    async def close(self) -> None: ...


class Wall(Protocol):
    """What a sandbox is called by."""

    @property
    def backend(self) -> str: ...

    @property
    def level(self) -> Level: ...


Connect = Callable[[SandboxSpec], Awaitable[Link]]


class RunnerSandbox:
    """See `Sandbox`.

    Args:
        launcher: what it was started by.
        spec: what it was opened with.
        connect: makes a fresh connection.
        connection: the first one.
        slots: where it waits for its turn.
        forget: called once when it is closed.
    """

    def __init__(
        self,
        launcher: Wall,
        spec: SandboxSpec,
        *,
        connect: Connect,
        connection: Link,
        slots: Slots,
        forget: "Callable[[RunnerSandbox], None]",
    ) -> None:
        self.backend, self.level = launcher.backend, Level(launcher.level)
        self.id = uuid.uuid4().hex[:12]
        self._spec, self._connect, self._slots = spec, connect, slots
        self._connection: Link | None = connection
        self._ending: set[Link] = set()
        self._past: list[requests.Request] = []
        self._turn = asyncio.Lock()
        self._forget = forget
        self._closed = False

    async def run_cell(self, code: str, *, limits: Limits | None = None) -> ExecResult:
        """See `Sandbox`."""
        limits = limits or self._spec.limits
        request = requests.cell(code, limits)
        (result,) = await self._run([_Step(request, limits, is_cell=True)])
        if result.state_lost:
            self._past = [past for past in self._past if past["op"] != "cell"]
        else:
            self._past.append(request)
        return result

    async def run_tests(
        self, program: str, cases: Sequence[Case], *, limits: Limits | None = None
    ) -> list[ExecResult]:
        """See `Sandbox`."""
        limits = limits or self._spec.limits
        steps = [
            _Step(requests.case(case, limits), limits, needs_value=not isinstance(case, Script))
            for case in cases
        ]
        return await self._run(steps, requests.program(program)) if steps else []

    async def run_shell(
        self, command: str, *, stdin: str = "", limits: Limits | None = None
    ) -> ExecResult:
        """See `Sandbox`."""
        limits = limits or self._spec.limits
        request = requests.shell(command, stdin, limits)
        (result,) = await self._run([_Step(request, limits)])
        self._past.append(request)
        return result

    async def write_file(self, path: str, data: bytes) -> None:
        """See `Sandbox`."""
        limits = self._spec.limits
        request = requests.write(path, data, limits)
        (result,) = await self._run([_Step(request, limits)])
        _file_data(path, result)
        self._past.append(request)

    async def read_file(self, path: str, *, max_bytes: int = 1_048_576) -> bytes:
        """See `Sandbox`."""
        limits = self._spec.limits
        (result,) = await self._run([_Step(requests.read(path, max_bytes, limits), limits)])
        return _file_data(path, result)

    async def reset(self) -> None:
        """See `Sandbox`."""
        async with self._turn:
            self._past = []
            await self._drop()
            await self._live()

    async def close(self) -> None:
        """See `Sandbox`."""
        if not self._closed:
            self._closed = True
            self._forget(self)
            await asyncio.shield(self._drop())
        for link in list(self._ending):  # by a call that was cancelled
            await asyncio.shield(link.close())

    async def _run(self, steps: "Sequence[_Step]", *before: requests.Request) -> list[ExecResult]:
        """The results of steps, whatever happens to the sandbox between them.

        They have limits of their own. If a deadline around counted them as well, code could wait
        until that has passed, and so look like an env that hangs.
        """
        results: list[ExecResult] = []
        with uncounted():
            async with self._turn:
                while len(results) < len(steps):
                    async with self._slots.take() as queue_s:
                        await self._try(steps, before, results)
                        results[:] = [replace(r, queue_s=r.queue_s or queue_s) for r in results]
                    if len(results) < len(steps):
                        results.append(await self._repeat(steps[len(results)], before))
        return results

    async def _try(
        self,
        steps: "Sequence[_Step]",
        before: Sequence[requests.Request],
        results: list[ExecResult],
    ) -> None:
        """Add results up to the first that says nothing of the code."""
        try:
            await self._ask(steps[len(results) :], before, results)
        except (LostError, _InfraError):
            return

    async def _repeat(self, step: "_Step", before: Sequence[requests.Request]) -> ExecResult:
        """A step alone on the machine, in a fresh sandbox.

        Raises:
            SandboxError: the machine has failed it again.
        """
        results: list[ExecResult] = []
        async with self._slots.take(alone=True) as queue_s:
            try:
                await self._ask([step], before, results)
            except LostError as error:
                lost = ExecResult(
                    outcome=Outcome.LOST,
                    state_lost=step.is_cell,
                    evidence=f"the sandbox died twice in this call: {error}",
                )
                results.append(lost)
            except _InfraError as error:
                raise SandboxError(f"the machine cannot run code: {error}") from error
        return replace(results[0], queue_s=queue_s, attempts=2)

    async def _ask(
        self,
        steps: "Sequence[_Step]",
        before: Sequence[requests.Request],
        results: list[ExecResult],
    ) -> None:
        """Add results as they come; a sandbox that is left in the middle of it is ended.

        Raises:
            LostError: the sandbox died.
            _InfraError: the machine is to blame for how one of them ended.
        """
        connection = await self._live()
        pending = deque(steps)

        def take(answer: dict[str, Any]) -> None:
            results.append(pending.popleft().judge(answer))

        try:
            asked = [*before, *(step.request for step in steps)]
            await connection.ask(asked, len(steps), max(step.timeout_s for step in steps), take)
        except BaseException:
            await asyncio.shield(self._drop())
            raise

    async def _live(self) -> Link:
        """A connection that works, in which everything has been done that was asked before.

        Raises:
            SandboxError: there is none to be had.
            LostError: the sandbox died while that was done again, by which code can die late.
        """
        self._refuse_if_closed()
        if self._connection is not None and self._connection.is_alive:
            return self._connection
        await self._drop()
        self._connection = connection = await self._connect(self._spec)
        try:
            self._refuse_if_closed()  # meanwhile
            for past in self._past:
                await connection.ask([past], 1, _timeout_s(past["limits"]["wall_s"]), _ignore)
        except BaseException:
            await asyncio.shield(self._drop())
            raise
        return connection

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise SandboxError("the sandbox has been closed")

    async def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            self._ending.add(connection)
            await connection.close()
            self._ending.discard(connection)


class _Step(NamedTuple):
    """One request that has an answer."""

    request: requests.Request
    limits: Limits
    needs_value: bool = False
    is_cell: bool = False

    @property
    def timeout_s(self) -> float:
        return _timeout_s(self.limits.wall_limit_s)

    def judge(self, answer: dict[str, Any]) -> ExecResult:
        """The result.

        Raises:
            LostError: the answer is none.
            _InfraError: it says nothing of the code.
        """
        try:
            evidence = read_evidence(answer)
        except ValueError as error:
            raise LostError(f"an answer that is none: {error}") from error
        result = judge(evidence, self.limits, needs_value=self.needs_value, is_cell=self.is_cell)
        if result.blame == "infra":
            raise _InfraError(result.evidence)
        return result


class _InfraError(Exception):
    """The machine is to blame: too busy to judge a call by the clock, or out of something."""


def _timeout_s(wall_s: float) -> float:
    return MAX_STRETCH * wall_s + _SPARE_S


def _ignore(answer: dict[str, Any]) -> None:  # noqa: ARG001 - what came of it is known
    return


def _file_data(path: str, result: ExecResult) -> bytes:
    """What the child that touched a file has reported.

    Raises:
        ToolError: it was refused.
    """
    if result.outcome is not Outcome.OK:
        raise ToolError(f"{path}: {result.outcome}: {result.evidence}")
    match result.value:
        case ["data", str(text)]:
            return base64.b64decode(text)
        case ["refused", str(reason)]:
            raise ToolError(reason)
    raise ToolError(f"{path}: {result.evidence or 'it cannot be reached'}")
