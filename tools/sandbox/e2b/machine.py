"""One virtual machine: a question goes in as code for its interpreter, answers come out as text.

Whatever goes wrong once a question has been sent is a `LostError`: code that is root in its own
machine can end it, or its network, and so could choose to look like a broken service. Whether it
was the service shows in a fresh machine, which has to answer an empty question before it counts.
"""

import asyncio
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from typing import Any

from agentgym.errors import SandboxError, boundary
from agentgym.tools.sandbox.base import SandboxSpec
from agentgym.tools.sandbox.e2b import answers, bundle
from agentgym.tools.sandbox.e2b.errors import Kind, ServiceError, kind_of, told
from agentgym.tools.sandbox.e2b.pace import backoff_s
from agentgym.tools.sandbox.e2b.service import Service
from agentgym.tools.sandbox.host.connection import LostError

_PER_QUESTION = 16
_BEATS = 5
"""Signs of life in the time that must not pass in silence."""
_END_S = 10.0
_PROBE_S = 5.0


class Machine:
    """A running machine, as `connection.Connection` is a running process."""

    def __init__(
        self, service: Service, spec: SandboxSpec, remote: Any, place: AsyncExitStack
    ) -> None:
        self._service, self._spec = service, spec
        self._remote, self._place = remote, place
        self._ends_at = time.monotonic() + service.terms.life_s
        self._last_end = time.monotonic() + service.terms.most_life_s
        self._over = False
        self._token = ""
        self._keeper = asyncio.create_task(self._keep())

    @classmethod
    async def start(cls, service: Service, spec: SandboxSpec) -> "Machine":
        """A fresh machine that has answered.

        Raises:
            SandboxError: there is none to be had.
            UsageError: the key, the template or a setting is refused.
        """
        machine = cls(service, spec, *await service.create())
        try:
            await machine.ask([], 0, service.terms.request_s, lambda _: None)
        except LostError as error:
            await machine.close()
            raise SandboxError(f"E2B: a new machine does not run code: {error}") from error
        except BaseException:
            await asyncio.shield(machine.close())
            raise
        return machine

    @property
    def id(self) -> str:
        return str(self._remote.sandbox_id)

    @property
    def is_alive(self) -> bool:
        """Whether it has not been ended, and its life is not over."""
        return not self._over and time.monotonic() < self._ends_at

    async def ask(
        self,
        requests: Sequence[Mapping[str, Any]],
        num_answers: int,
        timeout_s: float,
        take: Callable[[dict[str, Any]], None],
    ) -> None:
        """Hand on the answers, some at a time; see `connection.Connection.ask`.

        Raises:
            LostError: the machine or the runner in it died, or does not answer.
            UsageError: the key is no longer good.
        """
        before = [request for request in requests if request["op"] == "program"]
        asked = [request for request in requests if request["op"] != "program"]
        for some in _portions(asked):
            part = [*before, *some]
            found, lost = await self._ask(part, timeout_s)
            for answer in found:
                take(answer)
            if lost or len(found) < len(some):
                raise LostError(lost or "answers are missing")

    async def _ask(
        self, requests: Sequence[Mapping[str, Any]], seconds: float
    ) -> tuple[list[dict[str, Any]], str]:
        """The answers, and what stopped them; a question is sent again until it is answered."""
        beat_s = self._service.terms.silence_s / _BEATS
        question = bundle.question(
            self._token, self._spec, requests, seconds=seconds, beat_s=beat_s
        )
        last: BaseException | None = None
        for attempt in range(self._service.terms.attempts):
            if attempt:
                await asyncio.sleep(backoff_s(attempt - 1, self._service.rng))
            try:
                return await self._ask_once(question, seconds * len(requests), attempt > 0)
            except ServiceError as error:
                last = error.__cause__ or error
                await self._decide(error)
        raise LostError(f"no answer to {self._service.terms.attempts} requests; last: {last!r}")

    async def _ask_once(
        self, question: Mapping[str, Any], seconds: float, again: bool
    ) -> tuple[list[dict[str, Any]], str]:
        marker = uuid.uuid4().hex
        silence_s = self._service.terms.silence_s
        patience_s = silence_s + (seconds if again else 0.0)
        most_s = seconds + patience_s + silence_s
        try:
            async with asyncio.timeout(patience_s) as limit:
                ear = answers.Ear(limit, silence_s, most_s)
                with boundary(ServiceError, "running code"):
                    execution = await self._remote.run_code(
                        bundle.cell(question, marker),
                        on_stdout=ear.hear,
                        on_stderr=ear.hear,
                        timeout=most_s,
                    )
        except TimeoutError:
            what = f"nothing for {silence_s:g} s, or no answer within {most_s:g} s"
            raise LostError(f"the machine said {what}") from None
        answer = answers.read(execution, marker)
        self._token = answer.token
        return answer.answers, answer.lost

    async def _decide(self, error: ServiceError) -> None:
        """Return if the question is worth repeating.

        Raises:
            LostError: the machine is gone.
            UsageError: the caller has to do something.
        """
        cause = error.__cause__
        kind = kind_of(cause)
        if kind is Kind.CALLER:
            raise told(error, "running code") from error
        if kind is Kind.GONE or (kind is Kind.UNCLEAR and await self._is_gone()):
            raise LostError(f"the machine is gone: {cause}") from error

    async def _is_gone(self) -> bool:
        """Whether the service knows that it does not run; its silence is no answer."""
        try:
            with boundary(ServiceError, "asking whether it runs"):
                return not await self._remote.is_running(request_timeout=_PROBE_S)
        except ServiceError:
            return False

    async def _keep(self) -> None:
        """Prolong its life while it is in use; what is not prolonged ends by itself."""
        life_s = self._service.terms.life_s
        while time.monotonic() < self._last_end:
            await asyncio.sleep(life_s / 3)
            with suppress(ServiceError), boundary(ServiceError, "prolonging a life"):
                await self._remote.set_timeout(
                    life_s, request_timeout=self._service.terms.request_s
                )
                self._ends_at = time.monotonic() + life_s

    async def close(self) -> None:
        """End it; idempotent, never raises, takes at most ten seconds.

        One that cannot be ended is left to the sweep and to the end of its life.
        """
        if self._over:
            return
        self._over = True
        self._keeper.cancel()
        try:
            with suppress(TimeoutError, ServiceError):
                async with asyncio.timeout(_END_S):
                    await self._kill()
        finally:
            await self._place.aclose()

    async def _kill(self) -> None:
        for attempt in range(self._service.terms.attempts):
            try:
                with boundary(ServiceError, "ending a machine"):
                    await self._remote.kill(request_timeout=_PROBE_S)
                self._service.leases.ended(self.id)
                return
            except ServiceError:
                await asyncio.sleep(backoff_s(attempt, self._service.rng))


def _portions(asked: Sequence[Mapping[str, Any]]) -> Iterator[Sequence[Mapping[str, Any]]]:
    """As many at a time as can be answered in one go; one portion of none if there are none."""
    largest = max((_answer_bytes(request) for request in asked), default=1)
    size = max(1, min(_PER_QUESTION, answers.MOST_BYTES // 2 // largest))
    for start in range(0, max(1, len(asked)), size):
        yield asked[start : start + size]


def _answer_bytes(request: Mapping[str, Any]) -> int:
    limits = request["limits"]
    return int(limits["value_bytes"] + 2 * limits["output_bytes"] + 2 * request.get("max_bytes", 0))
