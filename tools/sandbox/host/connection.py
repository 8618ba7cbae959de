"""The host's end of one running sandbox: its process and the socket to its runner.

Sandboxes are started by one thread that never ends: the kernel kills them when the thread dies that
started them, which is meant for the death of the whole process.
"""

import asyncio
import json
import os
import socket
import subprocess
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from agentgym.errors import SandboxError, boundary
from agentgym.threads import Worker, in_thread
from agentgym.tools.sandbox.base import SandboxSpec
from agentgym.tools.sandbox.host.program_code import runner_code, runner_command
from agentgym.tools.sandbox.host.requests import limits_of
from agentgym.tools.sandbox.inside.wire import HEADER, MAX_FRAME, pack
from agentgym.tools.sandbox.walls.launch import Launch, Launcher
from agentgym.tools.sandbox.walls.starting import popen_arguments

_START_S = 20.0
_END_S = 2.0
_MAX_COMPLAINT = 4096
spawner = Worker()
"""The thread every sandbox is started in."""
_open: "weakref.WeakSet[Connection]" = weakref.WeakSet()


class LostError(Exception):
    """The sandbox died or talks nonsense; says what was seen."""


class Connection:
    """One sandbox process."""

    def __init__(self, launcher: Launcher, spec: SandboxSpec) -> None:
        """Start it; blocks for some milliseconds, and must run in the spawner.

        Raises:
            SandboxError: it cannot be started.
            UsageError: what the spec asks for is not here.
        """
        with boundary(SandboxError, f"{launcher.backend}: a sandbox cannot be started"):
            ours, theirs = socket.socketpair()
        self._socket = ours
        self._is_ready = False
        self._ended: Future[None] | None = None
        self.started = time.monotonic()
        try:
            with boundary(SandboxError, f"{launcher.backend}: a sandbox cannot be started"):
                self._launch, self.process = _start(launcher, spec, theirs)
                ours.setblocking(False)
                greeting = runner_code() + pack(_config(self._launch, spec))
                self._greeting = greeting[ours.send(greeting) :]
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        _open.add(self)

    @property
    def is_alive(self) -> bool:
        return self._socket.fileno() >= 0 and self.process.poll() is None

    async def ready(self) -> None:
        """Wait until the runner is there; at once the second time.

        Raises:
            SandboxError: it did not come up; says what it said.
        """
        if self._is_ready:
            return
        try:
            async with asyncio.timeout(_START_S):
                loop = asyncio.get_running_loop()
                await loop.sock_sendall(self._socket, self._greeting)
                hello = await self._receive()
        except (TimeoutError, LostError, OSError) as error:
            said = await in_thread(self._complaint)
            await self.close()
            raise SandboxError(f"the sandbox did not come up: {said or error!r}") from error
        if "hello" not in hello:
            raise SandboxError(f"the sandbox did not come up: it said {str(hello)[:200]}")
        self._is_ready = True

    async def ask(
        self,
        requests: Sequence[Mapping[str, Any]],
        num_answers: int,
        timeout_s: float,
        take: Callable[[dict[str, Any]], None],
    ) -> None:
        """Send requests, and hand on the answers as they come.

        Args:
            requests: in order.
            num_answers: how many are awaited.
            timeout_s: longest wait for each.
            take: is given each; what it raises ends the exchange.

        Raises:
            LostError: the sandbox died, went silent, or sent what is no answer.
        """
        loop = asyncio.get_running_loop()
        data = b"".join(pack(dict(request)) for request in requests)
        sending = loop.create_task(loop.sock_sendall(self._socket, data))
        try:
            for _ in range(num_answers):
                async with asyncio.timeout(timeout_s):
                    answer = await self._receive()
                take(answer)
            async with asyncio.timeout(timeout_s):
                await sending
        except TimeoutError as error:
            raise LostError(f"no answer within {timeout_s:g} s") from error
        except OSError as error:
            raise LostError(f"{type(error).__name__}: {error}") from error
        finally:
            sending.cancel()
            with suppress(asyncio.CancelledError, OSError):
                await sending

    async def _receive(self) -> dict[str, Any]:
        length = int.from_bytes(await self._read(HEADER), "big")
        if length > MAX_FRAME:
            raise LostError(f"a frame of {length} bytes")
        try:
            answer = json.loads(await self._read(length))
        except (ValueError, RecursionError) as error:
            raise LostError(f"a frame that is no JSON: {error}") from error
        if not isinstance(answer, dict):
            raise LostError("a frame that is no object")
        return answer

    async def _read(self, size: int) -> bytes:
        loop = asyncio.get_running_loop()
        parts: list[bytes] = []
        while size:
            part = await loop.sock_recv(self._socket, min(size, 2**20))
            if not part:
                raise LostError("the control socket was closed")
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def _complaint(self) -> str:
        """What the process wrote before it died."""
        self.process.kill()
        assert self.process.stderr is not None
        text: bytes = self.process.stderr.read(_MAX_COMPLAINT)
        return text.decode(errors="replace").strip()

    async def close(self) -> None:
        """End it and everything in it, and clear up; a second call waits for the first one."""
        if self._ended is None:
            self._ended = Worker().submit(self.end)
        await asyncio.shield(asyncio.wrap_future(self._ended))

    def end(self) -> None:
        """`close`, blocking for some milliseconds."""
        _open.discard(self)
        self._socket.close()
        try:
            self.process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            with suppress(subprocess.TimeoutExpired):  # one that the kernel holds on to
                self.process.wait(_START_S)
        if self.process.stderr is not None:
            self.process.stderr.close()
        self._launch.release()

    def drop(self) -> None:
        """In a forked child: let go of the socket, so that it does not keep the sandbox alive."""
        self._socket.close()


def _start(
    launcher: Launcher, spec: SandboxSpec, theirs: socket.socket
) -> "tuple[Launch, subprocess.Popen[bytes]]":
    launch = launcher.prepare(spec, runner_command(theirs.fileno()))
    try:
        process = subprocess.Popen(
            **popen_arguments(launch),
            env=dict(launch.env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            pass_fds=(theirs.fileno(), *launch.pass_fds),
            cwd="/",
            start_new_session=True,
        )
    except BaseException:
        launch.release()
        raise
    finally:
        for fd in launch.pass_fds:
            os.close(fd)
    return launch, process


def _config(launch: Launch, spec: SandboxSpec) -> dict[str, Any]:
    return {**launch.config, "limits": limits_of(spec.limits), "preload": list(spec.preload)}


def _drop_all() -> None:
    for connection in list(_open):
        connection.drop()


os.register_at_fork(after_in_child=_drop_all)
