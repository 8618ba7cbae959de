"""Where sandboxes of this machine come from; some are kept warm, so that one is ready at once."""

import asyncio
import threading
from collections import deque
from concurrent.futures import Future

from agentgym.errors import SandboxError
from agentgym.tools.sandbox.base import Level, ProbeReport, SandboxSpec
from agentgym.tools.sandbox.choosing.selftest import self_test
from agentgym.tools.sandbox.host.connection import Connection, spawner
from agentgym.tools.sandbox.host.sandbox import RunnerSandbox
from agentgym.tools.sandbox.host.slots import Slots
from agentgym.tools.sandbox.walls.launch import Launcher

_ATTEMPTS = 3
_PAUSE_S = 0.2


class LocalProvider:
    """See `SandboxProvider`.

    Args:
        launcher: the wall around each.
        slots: programs that run at once; as many as there are cores if left out.
        warm: sandboxes kept ready for the spec that was asked for last.
    """

    def __init__(self, launcher: Launcher, *, slots: int | None = None, warm: int = 2) -> None:
        self.backend, self.level = launcher.backend, Level(launcher.level)
        self._launcher, self._num_warm = launcher, warm
        self._slots = Slots(slots)
        self._lock = threading.Lock()
        self._warm: deque[Connection] = deque()
        self._warm_spec: SandboxSpec | None = None
        self._num_starting = 0
        self._open: set[RunnerSandbox] = set()
        self._closed = False

    async def open(self, spec: SandboxSpec | None = None) -> RunnerSandbox:
        """See `SandboxProvider`."""
        self._refuse_if_closed()
        spec = spec or SandboxSpec()
        connection = await self._connect(spec)
        if self._closed:  # meanwhile
            await connection.close()
            self._refuse_if_closed()
        sandbox = RunnerSandbox(
            self._launcher,
            spec,
            connect=self._connect,
            connection=connection,
            slots=self._slots,
            forget=self._open.discard,
        )
        self._open.add(sandbox)
        return sandbox

    async def probe(self) -> ProbeReport:
        """See `SandboxProvider`."""
        launcher = self._launcher
        probes = launcher.probes()
        if all(probe.ok for probe in probes) and launcher.level > Level.NONE:
            probes += await self_test(self)
        usable = all(probe.ok for probe in probes)
        return ProbeReport(self.backend, self.level, usable, probes, tuple(launcher.gaps))

    async def cool(self) -> None:
        """End the sandboxes that are kept warm; the next `open` begins to keep some again."""
        await spawner.run(lambda: None)
        with self._lock:
            warm = list(self._warm)
            self._warm.clear()
        for connection in warm:
            await connection.close()

    async def aclose(self) -> None:
        """See `SandboxProvider`."""
        self._closed = True
        await asyncio.gather(*(sandbox.close() for sandbox in list(self._open)))
        await spawner.run(lambda: None)
        while self._warm:
            await self._warm.popleft().close()

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise SandboxError(f"{self.backend}: this provider of sandboxes has been closed")

    async def _connect(self, spec: SandboxSpec) -> Connection:
        """A connection that is ready, tried several times."""
        attempt = 1
        while True:
            try:
                return await self._try_to_connect(spec)
            except SandboxError:
                if attempt == _ATTEMPTS:
                    raise
            await asyncio.sleep(_PAUSE_S * attempt)
            attempt += 1

    async def _try_to_connect(self, spec: SandboxSpec) -> Connection:
        connection = self._take_warm(spec)
        if connection is None:
            connection = await self._start(spec)
        self._refill(spec)
        try:
            await connection.ready()
        except BaseException:
            await asyncio.shield(connection.close())
            raise
        return connection

    async def _start(self, spec: SandboxSpec) -> Connection:
        starting = spawner.submit(lambda: Connection(self._launcher, spec))
        try:
            return await asyncio.wrap_future(starting)
        except asyncio.CancelledError:
            starting.add_done_callback(_end_if_started)
            raise

    def _take_warm(self, spec: SandboxSpec) -> Connection | None:
        with self._lock:
            while self._warm and self._warm_spec == spec:
                connection = self._warm.popleft()
                if connection.is_alive:
                    return connection
                spawner.submit(connection.end)
        return None

    def _refill(self, spec: SandboxSpec) -> None:
        """Start what is missing, in the background."""
        with self._lock:
            if self._closed:
                return
            if spec != self._warm_spec:
                self._warm_spec = spec
                while self._warm:
                    spawner.submit(self._warm.popleft().end)
            missing = self._num_warm - len(self._warm) - self._num_starting
            self._num_starting += max(0, missing)
        for _ in range(missing):
            spawner.submit(lambda: self._start_warm(spec))

    def _start_warm(self, spec: SandboxSpec) -> None:
        """In the spawner; what fails here fails again where it is waited for."""
        connection = None
        try:
            if not self._closed:
                connection = Connection(self._launcher, spec)
        finally:
            with self._lock:
                self._num_starting -= 1
                if connection is not None and self._warm_spec == spec:
                    self._warm.append(connection)
                    connection = None
        if connection is not None:
            connection.end()


def _end_if_started(starting: "Future[Connection]") -> None:
    """Nobody waits for it any more."""
    if not starting.cancelled() and starting.exception() is None:
        starting.result().end()
