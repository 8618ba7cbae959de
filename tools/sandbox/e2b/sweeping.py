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
        _all.add(self)

    def created(self, id: str) -> None:
        with self._lock:
            self._ids.add(id)
            _all.add(self)

    def ended(self, id: str) -> None:
        with self._lock:
            self._ids.discard(id)
            if not self._ids and not self._unsure:
                _all.discard(self)

    def sweep(self, *, at_most_s: float = 60.0) -> None:
        """End what is left, by id and by tag; what could not be ended stays listed.

        Blocks, since it must also work when no event loop is left. In a forked child nothing is
        done: the machines are its parent's.
        """
        if os.getpid() != self._process or not (self._ids or self._unsure):
            return
        from e2b_code_interpreter import Sandbox

        until = time.monotonic() + at_most_s
        left = set(self._ids)
        if self._unsure:
            with contextlib.suppress(ServiceError), boundary(ServiceError, "listing machines"):
                left |= self._tagged()
        for id in left:
            if time.monotonic() > until:
                return
            with contextlib.suppress(ServiceError), boundary(ServiceError, f"ending {id}"):
                Sandbox.kill(id, request_timeout=_REQUEST_S, **self._settings)
                self.ended(id)

    def _tagged(self) -> set[str]:
        from e2b import SandboxQuery
        from e2b_code_interpreter import Sandbox

        found: set[str] = set()
        query = SandboxQuery(metadata=self.metadata)
        pages = Sandbox.list(query=query, request_timeout=_REQUEST_S, **self._settings)
        while pages.has_next:
            found |= {info.sandbox_id for info in pages.next_items()}
        self._unsure = False
        return found


_all: set[Leases] = set()
"""Those that have something to end."""


@atexit.register
def _sweep_all() -> None:
    for leases in list(_all):
        leases.sweep(at_most_s=_EXIT_S)
