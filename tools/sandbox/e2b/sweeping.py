"""Which machines this process has running, so that none outlives it.

Three nets: whoever opened a machine ends it; what is left is ended when its provider closes or the
interpreter exits; and what even that misses (a process killed, a request to end it lost) ends by
the life that every machine is given, since nobody prolongs it any more. Machines whose id never
came back, because the answer to their creation was lost, are found by the tag they carry.
"""

import atexit
import contextlib
import os
import threading
import time
import uuid
from collections.abc import Mapping
from typing import Any

from agentgym.errors import boundary
from agentgym.tools.sandbox.e2b.errors import ServiceError

TAG = "agentgym"
_EXIT_S = 10.0
_REQUEST_S = 5.0


class Leases:
    """Machines of one provider that may be running.

    Args:
        settings: of the connection, for the SDK's calls without a machine at hand.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.tag = uuid.uuid4().hex
        self._settings = dict(settings)
        self._ids: set[str] = set()
        self._unsure = False
        self._lock = threading.Lock()
        self._process = os.getpid()
        _register(self)

    @property
    def metadata(self) -> dict[str, str]:
        """What each machine is created with."""
        return {TAG: self.tag}

    @property
    def ids(self) -> frozenset[str]:
        """Machines that were created and not ended."""
        return frozenset(self._ids)

    def unsure(self) -> None:
        """A machine may have been created whose id is not known."""
        self._unsure = True

    def created(self, id: str) -> None:
        with self._lock:
            self._ids.add(id)

    def ended(self, id: str) -> None:
        with self._lock:
            self._ids.discard(id)

    async def sweep(self) -> list[str]:
        """End what is left, by id and by tag; what could not be ended stays listed."""
        from e2b_code_interpreter import AsyncSandbox

        left = set(self._ids)
        if self._unsure:
            with contextlib.suppress(ServiceError), boundary(ServiceError, "listing machines"):
                left |= await self._tagged()
        for id in left:
            with contextlib.suppress(ServiceError), boundary(ServiceError, f"ending {id}"):
                await AsyncSandbox.kill(id, request_timeout=_REQUEST_S, **self._settings)
                self.ended(id)
        return sorted(left)

    async def _tagged(self) -> set[str]:
        from e2b import SandboxQuery
        from e2b_code_interpreter import AsyncSandbox

        found: set[str] = set()
        query = SandboxQuery(metadata=self.metadata)
        pages = AsyncSandbox.list(query=query, request_timeout=_REQUEST_S, **self._settings)
        while pages.has_next:
            found |= {info.sandbox_id for info in await pages.next_items()}
        self._unsure = False
        return found

    def sweep_at_exit(self) -> None:
        """The same without an event loop, in bounded time; a forked child leaves them alone."""
        if os.getpid() != self._process or not (self._ids or self._unsure):
            return
        from e2b_code_interpreter import Sandbox

        until = time.monotonic() + _EXIT_S
        left = set(self._ids)
        if self._unsure:
            with contextlib.suppress(ServiceError), boundary(ServiceError, "listing machines"):
                left |= self._tagged_now()
        for id in left:
            if time.monotonic() > until:
                return
            with contextlib.suppress(ServiceError), boundary(ServiceError, f"ending {id}"):
                Sandbox.kill(id, request_timeout=_REQUEST_S, **self._settings)
                self.ended(id)

    def _tagged_now(self) -> set[str]:
        from e2b import SandboxQuery
        from e2b_code_interpreter import Sandbox

        found: set[str] = set()
        query = SandboxQuery(metadata=self.metadata)
        pages = Sandbox.list(query=query, request_timeout=_REQUEST_S, **self._settings)
        while pages.has_next:
            found |= {info.sandbox_id for info in pages.next_items()}
        return found


_all: list[Leases] = []


def _register(leases: Leases) -> None:
    if not _all:
        atexit.register(_sweep_all)
    _all.append(leases)


def _sweep_all() -> None:
    for leases in _all:
        leases.sweep_at_exit()
