"""The service as this process uses it: one account, its limits, and how machines are asked for."""

import asyncio
import random
import uuid
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from typing import Any

from agentgym.errors import ConfigError, boundary
from agentgym.tools.sandbox.e2b.errors import Kind, ServiceError, gave_up, kind_of, told
from agentgym.tools.sandbox.e2b.pace import Rate, backoff_s
from agentgym.tools.sandbox.e2b.sweeping import Leases
from agentgym.tools.sandbox.host.slots import Slots


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What machines are asked for with."""

    template: str | None = None
    """The service's own for code, if left out."""
    allow_internet_access: bool = False
    life_s: int = 300
    """A machine that nobody prolongs ends after so many seconds."""
    most_life_s: int = 3600
    """Nobody prolongs one for longer than this."""
    silence_s: float = 30.0
    """A machine that says nothing for so long in a call is given up."""
    request_s: float = 30.0
    """Longest wait for the service itself."""
    attempts: int = 5
    """How often a request is made that the service does not answer as it should."""

    def __post_init__(self) -> None:
        for name in ("life_s", "most_life_s", "silence_s", "request_s", "attempts"):
            value: float = object.__getattribute__(self, name)
            if not 0 < value < float("inf"):
                raise ConfigError(f"E2B: {name}={value} must be positive and finite")


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """One account; shared by all sandboxes of a provider."""

    terms: Terms
    connection: Mapping[str, Any]
    """Key and addresses, for every call of the SDK."""
    places: Slots
    """Machines at once."""
    rate: Rate
    """New machines a second."""
    leases: Leases
    rng: random.Random = field(default_factory=random.SystemRandom)

    @property
    def settings(self) -> dict[str, Any]:
        return {**self.connection, "request_timeout": self.terms.request_s}

    async def create(self) -> "tuple[Any, AsyncExitStack]":
        """The SDK's object for a new machine, and its place, to be given back when it has ended.

        Raises:
            SandboxError: the service gave none, however often it was asked.
            UsageError: it never will.
        """
        place = AsyncExitStack()
        await place.enter_async_context(self.places.take())
        try:
            return await self._create_with_patience(), place
        except BaseException:
            await place.aclose()
            raise

    async def _create_with_patience(self) -> Any:
        key, last = str(uuid.uuid4()), None
        for attempt in range(self.terms.attempts):
            await self.rate.wait()
            try:
                return await self._create(key)
            except ServiceError as error:
                last = error.__cause__
                kind = kind_of(last)
                if kind is Kind.CALLER:
                    raise told(error, "creating a sandbox") from error
                delay = backoff_s(attempt, self.rng)
                if kind is Kind.BUSY:
                    self.rate.pause(delay)
            if attempt + 1 < self.terms.attempts:
                await asyncio.sleep(delay)
        raise gave_up("creating a sandbox", self.terms.attempts, last)

    async def _create(self, key: str) -> Any:
        """Ask once; under one key the service creates one machine, however often it is asked."""
        from e2b_code_interpreter import AsyncSandbox

        asking = asyncio.ensure_future(
            AsyncSandbox.create(
                self.terms.template,
                timeout=self.terms.life_s,
                metadata=self.leases.metadata,
                allow_internet_access=self.terms.allow_internet_access,
                idempotency_key=key,
                **self.settings,
            )
        )
        try:
            with boundary(ServiceError, "creating a sandbox"):
                machine = await asyncio.shield(asking)
        except ServiceError as error:
            if kind_of(error.__cause__) is Kind.UNCLEAR:
                self.leases.unsure()
            raise
        except asyncio.CancelledError:
            self.leases.unsure()
            asking.add_done_callback(self._end_unwanted)
            raise
        self.leases.created(machine.sandbox_id)
        return machine

    def _end_unwanted(self, asking: "asyncio.Future[Any]") -> None:
        """A machine that came when nobody waited for it any more."""
        if asking.cancelled() or asking.exception() is not None:
            return
        machine = asking.result()
        self.leases.created(machine.sandbox_id)
        ending = asyncio.ensure_future(self._end(machine))
        _ending.add(ending)
        ending.add_done_callback(_ending.discard)

    async def _end(self, machine: Any) -> None:
        with suppress(ServiceError), boundary(ServiceError, "ending a machine"):
            await machine.kill()
            self.leases.ended(machine.sandbox_id)


_ending: "set[asyncio.Future[None]]" = set()
"""Kept, since a loop alone does not keep its tasks."""
