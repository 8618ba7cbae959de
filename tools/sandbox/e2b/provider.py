"""Where sandboxes of E2B come from: machines of their service, one for each trajectory.

Only the machine is another: what runs in it, what is asked of it and what its answers mean is the
same as for sandboxes of this machine, so that a reward does not depend on where the code ran.
"""

import asyncio
import os
from importlib.util import find_spec
from typing import Any

from agentgym.errors import MissingExtraError, SandboxError, UsageError
from agentgym.threads import in_thread
from agentgym.tools.sandbox.base import Level, Probe, ProbeReport, SandboxSpec
from agentgym.tools.sandbox.e2b.machine import Machine
from agentgym.tools.sandbox.e2b.pace import Rate
from agentgym.tools.sandbox.e2b.sandbox import E2BSandbox
from agentgym.tools.sandbox.e2b.service import Service, Terms
from agentgym.tools.sandbox.e2b.sweeping import Leases
from agentgym.tools.sandbox.host.sandbox import RunnerSandbox
from agentgym.tools.sandbox.host.slots import Slots
from agentgym.tools.sandbox.limits import Limits

KEY = "E2B_API_KEY"
_WHERE = "create one at https://e2b.dev/dashboard?tab=keys"
_DIAL = """\
import socket
try:
    socket.create_connection(("1.1.1.1", 53), timeout=2)
except OSError as error:
    print(error)
"""


class E2BProvider:
    """See `SandboxProvider`.

    Args:
        api_key: of the account; `E2B_API_KEY` if left out.
        terms: what machines are asked for with.
        machines: at once; the service refuses more than the account's plan allows.
        per_second: new machines in the long run, likewise.
        api_url: of the service; `E2B_API_URL`, else E2B's own, if left out.
        sandbox_url: where machines are reached; `E2B_SANDBOX_URL` or E2B's own if left out.

    Raises:
        UsageError: there is no key, or it cannot be one.
        MissingExtraError: the SDK is not installed.
    """

    backend = "e2b"
    level = Level.VM

    def __init__(
        self,
        *,
        api_key: str | None = None,
        terms: Terms | None = None,
        machines: int = 20,
        per_second: float = 1.0,
        api_url: str | None = None,
        sandbox_url: str | None = None,
    ) -> None:
        given = {"api_url": api_url, "sandbox_url": sandbox_url}
        connection: dict[str, Any] = {"api_key": _key(api_key), "debug": False}
        connection |= {name: url for name, url in given.items() if url is not None}
        if find_spec("e2b_code_interpreter") is None:
            raise MissingExtraError("the E2B sandbox", "e2b")
        self._service = Service(
            terms=terms or Terms(),
            connection=connection,
            places=Slots(machines),
            rate=Rate(per_second, burst=max(1, round(per_second))),
            leases=Leases(connection),
        )
        self._open: set[RunnerSandbox] = set()
        self._closed = False

    async def open(self, spec: SandboxSpec | None = None) -> E2BSandbox:
        """See `SandboxProvider`."""
        self._refuse_if_closed()
        spec = spec or SandboxSpec()
        machine = await self._connect(spec)
        if self._closed:  # meanwhile
            await machine.close()
            self._refuse_if_closed()
        sandbox = E2BSandbox(spec, self._connect, machine, forget=self._open.discard)
        self._open.add(sandbox)
        return sandbox

    async def probe(self) -> ProbeReport:
        """Run code in a machine and try to leave it; takes as long as a new machine does."""
        try:
            probes = await self._probes()
        except (SandboxError, UsageError) as error:
            probes = (
                Probe(
                    "machine", False, str(error), f"check {KEY}, or use a sandbox of this machine"
                ),
            )
        usable = all(probe.ok for probe in probes)
        return ProbeReport(self.backend, self.level, usable, probes, self._gaps)

    async def aclose(self) -> None:
        """See `SandboxProvider`; looks for machines whose creation was never answered, too."""
        self._closed = True
        await asyncio.gather(*(sandbox.close() for sandbox in list(self._open)))
        await in_thread(self._service.leases.sweep)

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise SandboxError(f"{self.backend}: this provider of sandboxes has been closed")

    @property
    def _gaps(self) -> tuple[str, ...]:
        network = ("the code can reach the internet",)
        return (
            "code and its inputs leave this machine",
            "in its machine the code can become root, and disturb its own runner",
            *(network if self._service.terms.allow_internet_access else ()),
        )

    async def _connect(self, spec: SandboxSpec) -> Machine:
        return await Machine.start(self._service, spec)

    async def _probes(self) -> tuple[Probe, ...]:
        sandbox = await self.open()
        try:
            ran = await sandbox.run_cell("import sys; sys.version.split()[0]")
            dialled = await sandbox.run_cell(_DIAL, limits=Limits(wall_s=5))
        finally:
            await sandbox.close()
        machine = Probe("machine", ran.ok, f"Python {ran.value}" if ran.ok else ran.stderr)
        wanted = self._service.terms.allow_internet_access
        closed = bool(dialled.stdout.strip())
        said = dialled.stdout.strip() or "1.1.1.1 was reached"
        return (machine, Probe("network", closed or wanted, said))


def _key(given: str | None) -> str:
    key = os.environ.get(KEY, "") if given is None else given
    if not key:
        raise UsageError(f"the E2B sandbox needs {KEY}: {_WHERE}, or use a sandbox of this machine")
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise UsageError(f"{KEY} holds blanks or characters that no key has: {_WHERE}")
    return key
