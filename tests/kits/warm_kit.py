"""Programs as processes that start at once: forked from a Python that has imported what is slow.

The imports take longer than most runs of a test. The Python that is forked has read nothing, drawn
nothing and started no thread, and what is forked ends as an interpreter does; only what happens
while a program imports is not seen here.
"""

import gc
import json
import os
import resource
import runpy
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, TextIO

TRAINING = ("trl", "peft", "datasets", "matplotlib.pyplot", "agentgym.trainer.grpo", "agentgym.cli")
"""What `agentgym` imports to train."""
SURVIVES = {"jemalloc_bg_thd"}
"""A thread of pyarrow's that is started again in what is forked."""
LONGEST = 1 << 16


class Process:
    """A process in a session of its own, as `subprocess.Popen` has it."""

    def __init__(self, pid: int, server: "_Server") -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._server = server

    def poll(self) -> int | None:
        """The exit code, or minus the signal; `None` while it runs."""
        if self.returncode is None:
            self.returncode = self._server.ask({"reap": self.pid})
        return self.returncode

    def wait(self, timeout_s: float) -> int:
        """Its exit code.

        Raises:
            subprocess.TimeoutExpired: it has not ended by then, and goes on.
        """
        end = time.monotonic() + timeout_s
        while (code := self.poll()) is None:
            if time.monotonic() > end:
                raise subprocess.TimeoutExpired(str(self.pid), timeout_s)
            time.sleep(0.01)
        return code


class Program(Process):
    """One whose output is read while it runs."""

    def __init__(self, pid: int, server: "_Server", stdout: TextIO, stderr: TextIO) -> None:
        super().__init__(pid, server)
        self.stdout, self.stderr = stdout, stderr

    def communicate(self, timeout_s: float) -> tuple[str, str]:
        """All that is left to read of output and errors; what is longer at it is killed.

        Raises:
            subprocess.TimeoutExpired: it did not end in time.
        """
        said = ["", ""]

        def read(index: int, stream: TextIO) -> None:
            if not stream.closed:
                said[index] = stream.read()
                stream.close()

        streams = enumerate((self.stdout, self.stderr))
        readers = [threading.Thread(target=read, args=each) for each in streams]
        for reader in readers:
            reader.start()
        try:
            self.wait(timeout_s)
        except subprocess.TimeoutExpired:
            os.killpg(self.pid, signal.SIGKILL)
            self.wait(timeout_s)
            raise
        finally:
            for reader in readers:
                reader.join(timeout_s)
        return said[0], said[1]


def start(
    *words: str | Path,
    cwd: Path,
    env: Mapping[str, str] | None = None,
    limit_bytes: int | None = None,
) -> Program:
    """What `python words` does: `-m module`, `-c code` or a file, and arguments.

    Files that it writes are no longer than `limit_bytes`. Settings of the interpreter and of
    PyTorch in `env` come too late.
    """
    pipes = [os.pipe(), os.pipe()]
    order = _order(words, os.environ if env is None else env, cwd) | {"limit_bytes": limit_bytes}
    server = _server(TRAINING)
    pid = server.fork(order, *(writing for _, writing in pipes))
    for _, writing in pipes:
        os.close(writing)
    return Program(pid, server, *(open(reading, encoding="utf-8") for reading, _ in pipes))


def start_logged(
    *words: str | Path, log: Path, env: Mapping[str, str], imported: tuple[str, ...]
) -> Process:
    """The same beside its log, from a Python that has imported those modules."""
    server = _server(imported)
    with log.open("wb") as output:
        pid = server.fork(_order(words, env, log.parent), output.fileno(), output.fileno())
    return Process(pid, server)


def run(
    *words: str | Path, cwd: Path, timeout_s: float = 300
) -> "subprocess.CompletedProcess[str]":
    """Start a program and wait for its end.

    Raises:
        subprocess.TimeoutExpired: it did not end in time.
    """
    program = start(*words, cwd=cwd)
    out, err = program.communicate(timeout_s)
    assert program.returncode is not None
    return subprocess.CompletedProcess(list(words), program.returncode, out, err)


def _order(words: Sequence[str | Path], env: Mapping[str, str], cwd: Path) -> dict[str, Any]:
    return {"words": [str(word) for word in words], "env": dict(env), "cwd": str(cwd)}


class _Server:
    """The Python that is forked; ends with this process."""

    def __init__(self, imported: tuple[str, ...]) -> None:
        self._turn = threading.Lock()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno()), *imported],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )

    def fork(self, order: Mapping[str, Any], *descriptors: int) -> int:
        pid = self.ask(order, *descriptors)
        assert pid is not None
        return pid

    def ask(self, order: Mapping[str, Any], *descriptors: int) -> int | None:
        with self._turn:
            socket.send_fds(self._socket, [json.dumps(order).encode()], descriptors)
            answer = self._socket.recv(LONGEST)
        assert answer, "the Python that is forked has ended"
        number: int | None = json.loads(answer)
        return number


_servers: dict[tuple[str, ...], _Server] = {}
_starting = threading.Lock()


def _server(imported: tuple[str, ...]) -> _Server:
    """The same for whoever asks, also at the same time."""
    with _starting:
        if imported not in _servers:
            _servers[imported] = _Server(imported)
        return _servers[imported]


def _serve(control: socket.socket) -> dict[str, Any]:
    """Returns in the child that is to run a program; ends the parent with whoever asks it."""
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, LONGEST, 2)
        if not message:
            os._exit(0)
        order: dict[str, Any] = json.loads(message)
        if "reap" in order:
            pid, status = os.waitpid(order["reap"], os.WNOHANG)
            answer = os.waitstatus_to_exitcode(status) if pid else None
        elif (answer := os.fork()) == 0:
            control.close()
            _become(order, descriptors)
            return order
        for descriptor in descriptors:
            os.close(descriptor)
        control.send(json.dumps(answer).encode())


def _become(order: Mapping[str, Any], descriptors: list[int]) -> None:
    os.setsid()
    for target, descriptor in enumerate(descriptors, start=1):
        os.dup2(descriptor, target)
        os.close(descriptor)
    os.chdir(order["cwd"])
    os.environ.clear()
    os.environ.update(order["env"])
    if (longest := order.get("limit_bytes")) is not None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (longest, longest))


def _run(words: list[str]) -> None:
    """As the interpreter reads its own command line."""
    sys.argv = words[1:] if words[0] in ("-m", "-c") else words
    if words[0] == "-m":
        sys.path[0] = os.getcwd()
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        return
    if words[0] == "-c":
        sys.argv, sys.path[0] = ["-c", *words[2:]], ""
        exec(compile(words[1], "<string>", "exec"), {"__name__": "__main__"})
        return
    sys.path[0] = str(Path(words[0]).parent)
    runpy.run_path(words[0], run_name="__main__")


def main() -> None:
    control = socket.socket(fileno=int(sys.argv[1]))
    for name in sys.argv[2:]:
        import_module(name)
    threads = [path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")]
    assert len(set(threads) - SURVIVES) == 1, f"one of {threads} would be missing in the children"
    gc.freeze()  # else every child looks through what was imported, and copies it, as it ends
    _run(_serve(control)["words"])


if __name__ == "__main__":
    main()
