"""A stand-in for E2B's service on loopback, spoken to by the genuine SDK over real HTTP.

It answers the endpoints that the SDK calls, and runs the code behind a wall of this machine. What
the service may do wrong is switched on with `fail`, for the next requests of one kind.
"""

import asyncio
import inspect
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.parse
import uuid
from collections import defaultdict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import e2b_machine
import e2b_shapes
from aiohttp import web

from agentgym.tools.sandbox.base import SandboxSpec
from agentgym.tools.sandbox.walls.launch import Launcher

KEY = "e2b_" + "0" * 40
# Read when the SDK is imported: a stand-in that no longer listens will not come back.
os.environ.setdefault("E2B_CONNECTION_RETRIES", "0")


@dataclass(frozen=True, kw_only=True)
class Fault:
    """What goes wrong with one request."""

    status: int = 0
    """Answer with this status."""
    retry_after: int | None = None
    drop: str = ""
    """Cut the connection: "before" anything is done; "unheard", once the code has begun; "midway"
    through its output; or "after" it has ended, in place of an answer."""
    hang: bool = False
    """Never answer."""
    slow_s: float = 0.0
    """Answer late."""
    garbage: bool = False
    """Answer with what is no JSON."""


@dataclass
class Running:
    """One machine."""

    id: str
    process: "subprocess.Popen[bytes]"
    writer: asyncio.StreamWriter
    metadata: dict[str, str]
    asked: dict[str, Any]
    ends: datetime
    timer: "asyncio.TimerHandle | None" = None
    queues: "dict[int, asyncio.Queue[Any]]" = field(default_factory=dict)
    number: int = 0
    reader: "asyncio.Task[None] | None" = None
    release: Any = None


class StandIn:
    """The service.

    Args:
        launcher: the wall the code runs behind; none if left out.
        most: machines at once, more are answered with 429.
        python: interpreter of machines without a wall.
    """

    def __init__(
        self, launcher: Launcher | None = None, *, most: int = 100, python: str = sys.executable
    ) -> None:
        self._launcher, self._most, self._python = launcher, most, python
        self.running: dict[str, Running] = {}
        self.seen: list[tuple[str, str]] = []
        """Method and kind of every request."""
        self.created: list[dict[str, Any]] = []
        """Bodies of what was created."""
        self.most_at_once = 0
        self.interrupts = True
        """Whether code is interrupted when nobody waits for it any more, as there."""
        self._faults: defaultdict[str, deque[Fault]] = defaultdict(deque)
        self._keys: dict[str, str] = {}
        self._runner: web.AppRunner | None = None
        self.url = ""

    @property
    def settings(self) -> dict[str, Any]:
        """For `E2BProvider`."""
        return {"api_key": KEY, "api_url": self.url, "sandbox_url": self.url}

    def fail(self, kind: str, *faults: Fault) -> None:
        """Have the next requests of a kind go wrong.

        Args:
            kind: create, execute, kill, timeout, health or list.
            faults: one for each request.
        """
        self._faults[kind].extend(faults)

    def count(self, kind: str) -> int:
        """Requests of a kind so far."""
        return sum(seen == kind for _, seen in self.seen)

    async def start(self, port: int = 0) -> None:
        app = web.Application(client_max_size=2**28)
        app.router.add_route("*", "/{path:.*}", self._serve)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", port)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def refuse(self) -> None:
        """No longer listen; machines go on."""
        assert self._runner is not None
        await self._runner.cleanup()

    async def stop(self) -> None:
        for id in list(self.running):
            self.end(id)
        if self._runner is not None:
            await self._runner.cleanup()

    def end(self, id: str) -> None:
        """What the end of a machine's life does, or a request to end it."""
        machine = self.running.pop(id)
        if machine.timer is not None:
            machine.timer.cancel()
        if machine.reader is not None:
            machine.reader.cancel()
        machine.writer.close()
        with suppress(ProcessLookupError):
            os.killpg(machine.process.pid, signal.SIGKILL)
        machine.process.wait()
        if machine.release is not None:
            machine.release()
        for queue in machine.queues.values():
            queue.put_nowait("gone")

    def kill_interpreters(self) -> None:
        """As in a machine that has run out of memory; the service starts new ones."""
        for machine in self.running.values():
            self._tell(machine, {"op": "kill", "context": "default"})

    # requests

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        kind = e2b_shapes.kind(request)
        self.seen.append((request.method, kind))
        fault = self._faults[kind].popleft() if self._faults[kind] else Fault()
        if fault.drop == "before":
            return e2b_shapes.dropped(request)
        if fault.hang:
            await asyncio.sleep(3600)
        await asyncio.sleep(fault.slow_s)
        if fault.status:
            wait = {} if fault.retry_after is None else {"Retry-After": str(fault.retry_after)}
            message = {"code": fault.status, "message": f"fault {fault.status}"}
            return web.json_response(message, status=fault.status, headers=wait)
        if fault.garbage:
            return web.Response(text="<html>not what you asked for</html>")
        if kind not in ("execute", "health", "contexts") and e2b_shapes.key_of(request) != KEY:
            return web.json_response({"code": 401, "message": "no such key"}, status=401)
        handler = {
            "create": self._create,
            "list": self._list,
            "kill": self._kill,
            "timeout": self._timeout,
            "health": self._health,
            "execute": self._execute,
        }.get(kind)
        if handler is None:
            return web.json_response({"code": 404, "message": "no such endpoint"}, status=404)
        if kind == "execute":
            return await self._execute(request, fault)
        response: web.StreamResponse = await handler(request)
        return e2b_shapes.dropped(request) if fault.drop == "after" else response

    async def _create(self, request: web.Request) -> web.Response:
        body = await request.json()
        if body["templateID"] != e2b_shapes.TEMPLATE:
            return web.json_response({"code": 404, "message": "no such template"}, status=404)
        key = request.headers.get("Idempotency-Key", "")
        if key and key in self._keys:
            return e2b_shapes.created(self._keys[key])
        if len(self.running) >= self._most:
            return web.json_response({"code": 429, "message": "too many"}, status=429)
        self.created.append(body)
        machine = await self._start(body)
        self._keys[key] = machine.id
        self.most_at_once = max(self.most_at_once, len(self.running))
        return e2b_shapes.created(machine.id)

    async def _list(self, request: web.Request) -> web.Response:
        asked = dict(urllib.parse.parse_qsl(request.query.get("metadata", "")))
        found = [m for m in self.running.values() if asked.items() <= m.metadata.items()]
        return web.json_response([e2b_shapes.listed(machine) for machine in found])

    async def _kill(self, request: web.Request) -> web.Response:
        id = request.path.split("/")[2]
        if id not in self.running:
            return web.json_response({"code": 404, "message": "not found"}, status=404)
        self.end(id)
        return web.Response(status=204)

    async def _timeout(self, request: web.Request) -> web.Response:
        id = request.path.split("/")[2]
        if id not in self.running:
            return web.json_response({"code": 404, "message": "not found"}, status=404)
        self._set_life(self.running[id], (await request.json())["timeout"])
        return web.Response(status=204)

    async def _health(self, request: web.Request) -> web.Response:
        id = request.headers["E2b-Sandbox-Id"]
        return web.Response(status=204) if id in self.running else e2b_shapes.gone(id)

    async def _execute(self, request: web.Request, fault: Fault = Fault()) -> web.StreamResponse:
        body, id = await request.json(), request.headers["E2b-Sandbox-Id"]
        machine = self.running.get(id)
        if machine is None:
            return e2b_shapes.gone(id)
        number, events = self._send(machine, body)
        if fault.drop == "unheard":
            await asyncio.sleep(0.1)
            self._tell(machine, {"op": "interrupt", "context": "default"})
            return e2b_shapes.dropped(request)
        response = web.StreamResponse()
        response.content_type = "application/x-ndjson"
        if fault.drop != "after":
            await response.prepare(request)
        while True:
            event = await self._next(request, machine, events)
            if event == "gone":
                return e2b_shapes.dropped(request)
            if event is None:
                break
            if fault.drop == "midway" and event["type"] == "stdout":
                await response.write(json.dumps(event).encode()[:20])
                return e2b_shapes.dropped(request)
            if fault.drop != "after":
                await response.write(json.dumps(event).encode() + b"\n")
        del machine.queues[number]
        return e2b_shapes.dropped(request) if fault.drop == "after" else response

    async def _next(
        self, request: web.Request, machine: Running, events: "asyncio.Queue[Any]"
    ) -> Any:
        """The next event; code that nobody waits for any more is interrupted."""
        while True:
            with suppress(TimeoutError):
                return await asyncio.wait_for(events.get(), 0.1)
            if request.transport is None or request.transport.is_closing():
                if self.interrupts:
                    self._tell(machine, {"op": "interrupt", "context": "default"})
                return "gone"

    # machines

    async def _start(self, body: dict[str, Any]) -> Running:
        ours, theirs = socket.socketpair()
        process, release = _spawn(self._launcher, theirs, self._python)
        theirs.close()
        reader, writer = await asyncio.open_connection(sock=ours, limit=2**28)
        machine = Running(
            id="i" + uuid.uuid4().hex[:20],
            process=process,
            writer=writer,
            metadata=body.get("metadata", {}),
            asked=body,
            ends=datetime.now(UTC),
            release=release,
        )
        machine.reader = asyncio.create_task(self._read(machine, reader))
        self.running[machine.id] = machine
        self._set_life(machine, body.get("timeout", 15))
        return machine

    def _set_life(self, machine: Running, seconds: float) -> None:
        if machine.timer is not None:
            machine.timer.cancel()
        machine.ends = datetime.now(UTC) + timedelta(seconds=seconds)
        loop = asyncio.get_running_loop()
        machine.timer = loop.call_later(seconds, self.end, machine.id)

    def _send(self, machine: Running, body: dict[str, Any]) -> "tuple[int, asyncio.Queue[Any]]":
        machine.number += 1
        events = machine.queues[machine.number] = asyncio.Queue()
        context = body.get("context_id") or "default"
        asked = {"op": "execute", "n": machine.number, "code": body["code"], "context": context}
        self._tell(machine, asked)
        return machine.number, events

    def _tell(self, machine: Running, request: dict[str, Any]) -> None:
        machine.writer.write((json.dumps(request) + "\n").encode())

    async def _read(self, machine: Running, reader: asyncio.StreamReader) -> None:
        while line := await reader.readline():
            message = json.loads(line)
            if "died" in message:
                for queue in machine.queues.values():
                    queue.put_nowait(
                        {"type": "error", "name": "Died", "value": "", "traceback": ""}
                    )
                    queue.put_nowait(None)
            elif message["n"] in machine.queues:
                machine.queues[message["n"]].put_nowait(message["event"])
        if machine.id in self.running:
            machine.reader = None
            self.end(machine.id)


@asynccontextmanager
async def stand_in(
    launcher: Launcher | None = None, *, python: str = sys.executable
) -> AsyncIterator[StandIn]:
    """A service that listens."""
    service = StandIn(launcher, python=python)
    await service.start()
    try:
        yield service
    finally:
        await service.stop()


def _spawn(
    launcher: Launcher | None, theirs: socket.socket, python: str
) -> "tuple[subprocess.Popen[bytes], Any]":
    source = f"{inspect.getsource(e2b_machine)}\nmain({theirs.fileno()})"
    common: dict[str, Any] = {"stdin": subprocess.DEVNULL, "start_new_session": True}
    if launcher is None:
        env = {"PATH": os.defpath, "TMPDIR": tempfile.gettempdir()}
        argv = [python, "-c", source]
        return subprocess.Popen(argv, env=env, pass_fds=(theirs.fileno(),), **common), None
    launch = launcher.prepare(
        SandboxSpec(), lambda python: [python, "-P", "-s", "-S", "-c", source]
    )
    process = subprocess.Popen(
        list(launch.argv),
        env=dict(launch.env),
        pass_fds=(theirs.fileno(), *launch.pass_fds),
        user=launch.user,
        group=launch.user,
        extra_groups=None if launch.user is None else [],
        cwd="/",
        **common,
    )
    for fd in launch.pass_fds:
        os.close(fd)
    return process, launch.release
