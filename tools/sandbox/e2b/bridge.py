"""Runs in the service's interpreter: starts the runner beside it and hands frames to and fro.

Standard library only, sent as text; no foreign code runs in here. A call has an id, and its answers
are kept until the next one: a caller whose connection broke asks again under the same id and gets
what the first request came to, so that nothing is run twice. Between two answers the service may
interrupt this at any time; only the waiting can be interrupted, and is taken up again.
"""

from __future__ import annotations

import base64
import json
import marshal
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import zlib
from typing import Any

_HEADER, _SIZE = 4, 8
_MOST = 2**26
_START_S = 30.0
_SLICE_S = 0.2


class Lost(Exception):
    """The runner is gone, or does not answer."""


class Bridge:
    """The runner of this machine, and the call under way."""

    def __init__(self) -> None:
        self.token = os.urandom(8).hex()
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._base = ""
        self._is_up = False
        self._id = ""
        self._waiting: list[dict[str, Any]] = []
        self._answers: list[Any] = []
        self._until: float | None = None
        self._beat_s, self._last_beat = 1.0, 0.0
        self._interrupted = False
        self._lost = ""
        self._buffer = b""

    def ask(self, call: dict[str, Any]) -> dict[str, Any]:
        """The answers to a call's questions; fewer, and why, if the runner was lost."""
        if call["token"] not in ("", self.token):
            return self._answer("the service's interpreter was started anew")
        self._interrupted = False
        before = signal.signal(signal.SIGINT, self._note_interrupt)
        try:
            if call["id"] != self._id:
                self._begin(call)
            self._lost = self._lost or self._finish(call)
            return self._answer(self._lost)
        finally:
            signal.signal(signal.SIGINT, before or signal.SIG_DFL)

    def _note_interrupt(self, number: int, frame: Any) -> None:
        self._interrupted = True

    def _answer(self, lost: str) -> dict[str, Any]:
        return {"answers": self._answers, "lost": lost, "token": self.token}

    def _begin(self, call: dict[str, Any]) -> None:
        if self._waiting:
            self._end()
        self._id, self._waiting, self._answers = call["id"], list(call["questions"]), []
        self._until, self._beat_s, self._lost = None, call["beat_s"], ""

    def _finish(self, call: dict[str, Any]) -> str:
        try:
            if self._process is None:
                self._start(call["start"])
            if not self._is_up:
                self._receive(time.monotonic() + _START_S)
                self._is_up = True
            while self._waiting:
                self._one(self._waiting[0])
                del self._waiting[0]
        except Lost as error:
            self._waiting = []
            self._end()
            return str(error)
        return ""

    def _one(self, question: dict[str, Any]) -> None:
        if self._until is None:
            self._until = time.monotonic() + question["seconds"]
            self._send(question["request"])
        if question["answered"]:
            self._answers.append(self._receive(self._until))
        self._until = None

    def _start(self, start: dict[str, Any]) -> None:
        """Start a runner in folders of its own."""
        self._base = tempfile.mkdtemp(prefix="agentgym-")
        folders = {name: os.path.join(self._base, name) for name in ("work", "scratch", "home")}
        for folder in folders.values():
            os.mkdir(folder)
        mine, theirs = socket.socketpair()
        control = os.dup2(theirs.fileno(), start["control"])
        theirs.close()
        with open(os.path.join(self._base, "errors"), "wb") as errors:
            self._process = subprocess.Popen(
                _command(start["command"]),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                pass_fds=(control,),
                start_new_session=True,
                env={"LANG": "C.UTF-8"},
            )
        os.close(control)
        self._socket, self._buffer, self._is_up = mine, b"", False
        code = _code(start["modules"])
        self._write(len(code).to_bytes(_SIZE, "big") + code)
        self._send(_config(start["config"], folders, self._base))

    def _send(self, message: dict[str, Any]) -> None:
        body = json.dumps(message).encode()
        self._write(len(body).to_bytes(_HEADER, "big") + body)

    def _write(self, data: bytes) -> None:
        assert self._socket is not None
        try:
            self._socket.settimeout(_START_S)
            self._socket.sendall(data)
        except OSError as error:
            raise Lost(f"the runner takes no requests: {error}; {self._ending()}") from None

    def _receive(self, until: float) -> Any:
        while True:
            size = int.from_bytes(self._buffer[:_HEADER], "big")
            if len(self._buffer) >= _HEADER and size > _MOST:
                raise Lost(f"the runner announced an answer of {size} bytes")
            if len(self._buffer) >= _HEADER + size > _HEADER:
                body = self._buffer[_HEADER : _HEADER + size]
                self._buffer = self._buffer[_HEADER + size :]
                return _parsed(body)
            self._read(until)

    def _read(self, until: float) -> None:
        assert self._socket is not None
        ready = select.select([self._socket], [], [], _SLICE_S)[0]
        if self._interrupted:
            self._interrupted = False
            raise KeyboardInterrupt
        if not ready:
            self._idle(until)
            return
        try:
            data = self._socket.recv(2**20)
        except OSError as error:
            raise Lost(f"the runner is gone: {error}; {self._ending()}") from None
        if not data:
            raise Lost(f"the runner is gone; {self._ending()}")
        self._buffer += data

    def _idle(self, until: float) -> None:
        """While there is nothing to read: see that there may be, and say so."""
        now = time.monotonic()
        if now > until:
            raise Lost("the runner did not answer in time")
        if now - self._last_beat >= self._beat_s:
            self._last_beat = now
            self._check_that_it_runs()
            print(end=".", flush=True)

    def _check_that_it_runs(self) -> None:
        assert self._process is not None
        with open(f"/proc/{self._process.pid}/stat") as file:
            state = file.read().rpartition(")")[2].split()[0]
        if state in "Tt":
            raise Lost("the runner was stopped")

    def _ending(self) -> str:
        """How it ended, and its last words."""
        assert self._process is not None
        try:
            code = self._process.wait(timeout=2)
            with open(os.path.join(self._base, "errors"), "rb") as file:
                return f"exit code {code} {file.read()[-500:].decode(errors='replace')}".strip()
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)

    def _end(self) -> None:
        """Let go of the runner; when its socket closes it kills what it has started."""
        if self._process is None:
            return
        assert self._socket is not None
        self._socket.close()
        self._process.send_signal(signal.SIGCONT)
        try:
            self._process.wait(timeout=3)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._base, ignore_errors=True)
        self._process = self._socket = None


def _command(words: list[str]) -> list[str]:
    tag = sys.implementation.cache_tag
    if sys.version_info < (3, 11):  # noqa: UP036 - of the machine, not of this package
        words = [word for word in words if word != "-P"]
    return [word.replace("{python}", sys.executable).replace("{tag}", tag) for word in words]


def _code(modules: list[list[Any]]) -> bytes:
    """The runner's modules, compiled by the interpreter that will run them."""
    return marshal.dumps(
        [
            (
                name,
                None if source is None else compile(source, f"<agentgym sandbox>/{name}", "exec"),
            )
            for name, source in modules
        ]
    )


def _config(config: dict[str, Any], folders: dict[str, str], base: str) -> dict[str, Any]:
    packages = [path for path in sys.path if path.rstrip("/").endswith("-packages")]
    env = {
        "PATH": os.pathsep.join([os.path.dirname(sys.executable), os.defpath]),
        "HOME": folders["home"],
        "TMPDIR": folders["scratch"],
        **config["env"],
    }
    places = {"workdir": folders["work"], "scratch": [folders["scratch"]], "remove": [base]}
    return {**config, **places, "import_paths": packages, "env": env}


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Lost(f"the runner's answer is no JSON: {error}") from None


_bridge = Bridge()


def call(question: str, marker: str) -> None:
    """Answer a question of the host on this interpreter's output, between two markers."""
    answer = _bridge.ask(json.loads(zlib.decompress(base64.b64decode(question))))
    packed = base64.b64encode(zlib.compress(json.dumps(answer).encode(), 1)).decode()
    sys.stdout.write(f"\n{marker}{packed}{marker}\n")
    sys.stdout.flush()
