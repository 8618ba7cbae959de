"""Runs a function behind the walls of `inside.confine`, as a runner and its child would.

The code has the user of the decoys: what it may do to them is what Landlock and the filter leave
open, as for a trainer that is an ordinary user.
"""

import base64
import errno
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from agentgym.tools.sandbox.inside import landlock, system
from agentgym.tools.sandbox.inside.confine import Confinement
from agentgym.tools.sandbox.walls import uids
from agentgym.tools.sandbox.walls.seccomp import build_filter
from agentgym.tools.sandbox.walls.syscalls import this_machine

KERNEL_ABI = landlock.version()
_DEVICES = ["/dev/null", "/dev/zero", "/dev/urandom"]
_LONGEST_S = 60


@dataclass(frozen=True, kw_only=True)
class Wall:
    """What is put around the function."""

    abi: int = KERNEL_ABI
    owns_uid: bool = False
    without: tuple[str, ...] = ()
    read: tuple[str, ...] = ()
    """Beside /usr and the library."""
    capability: int | None = None


class Told(NamedTuple):
    """How it went."""

    text: str
    """`repr` of what the function returned, or the name of the errno it was refused with."""
    runner_lives: bool


class Decoys:
    """A user's files, process and sockets outside, and two folders that are open to the code."""

    def __enter__(self) -> "Decoys":
        free = uids.available()
        self.user = free.take() if free.free else None
        self._stack = ExitStack()
        root = Path(tempfile.mkdtemp(prefix="agentgym-confine-"))
        self._stack.callback(shutil.rmtree, root, ignore_errors=True)
        self.outside, self.library, self.workdir = (root / n for n in ("out", "lib", "work"))
        self.file, self.book = self.outside / "secret", self.library / "book"
        for folder in (root, self.outside, self.library, self.workdir):
            folder.mkdir(mode=0o755, exist_ok=True)
            os.chmod(folder, 0o755)
        for file in (self.file, self.book):
            file.write_text("secret")
            os.chmod(file, 0o640)
        self.stream = self._listen(self.outside / "stream", socket.SOCK_STREAM)
        self.datagram = self._listen(self.outside / "datagram", socket.SOCK_DGRAM)
        self.abstract = self._listen(f"\0{root.name}", socket.SOCK_STREAM)
        self.tcp = self._stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        self._give([root, *root.rglob("*")])
        self.process = self._start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        uids.give_back(self.user)

    def state(self) -> dict[str, Any]:
        """What can be seen of all that is not open to the code."""
        pid = self.process.pid
        seen: dict[str, Any] = {"ended": self.process.poll()}
        for path in (self.file, self.book):
            status = path.stat()
            seen[path.name] = (status.st_mode, status.st_size, status.st_mtime_ns, status.st_uid)
            seen[f"attributes of {path.name}"] = os.listxattr(path)
        if seen["ended"] is None:
            limits = Path(f"/proc/{pid}/limits").read_text()
            seen["process"] = (limits, os.getpriority(os.PRIO_PROCESS, pid))
            seen["scheduling"] = (os.sched_getscheduler(pid), os.sched_getaffinity(pid))
        return seen | {"names": sorted(os.listdir(self.outside)), "post": self._post()}

    def _give(self, paths: "list[Path]") -> None:
        if self.user is not None:
            for path in paths:
                os.chown(path, self.user, self.user)

    def _listen(self, address: "Path | str", kind: int) -> str:
        server = self._stack.enter_context(socket.socket(socket.AF_UNIX, kind))
        server.bind(str(address))
        server.setblocking(False)
        if kind == socket.SOCK_STREAM:
            server.listen()
        else:
            self._box = server
        return str(address)

    def _post(self) -> str:
        with suppress(BlockingIOError):
            return self._box.recv(100).decode()
        return ""

    def _start(self) -> "subprocess.Popen[bytes]":
        process = subprocess.Popen(
            ["/usr/bin/sleep", "60"],
            user=self.user,
            group=self.user,
            extra_groups=None if self.user is None else [],
        )
        self._stack.callback(process.wait)
        self._stack.callback(process.kill)
        return process


def confined(attack: Callable[[Decoys], Any], decoys: Decoys, wall: Wall | None = None) -> Told:
    """What a function got behind a wall."""
    read, write = os.pipe()
    runner = os.fork()
    if runner == 0:
        os.close(read)
        _be_the_runner(attack, decoys, wall or Wall(), write)
    os.close(write)
    with open(read, "rb") as pipe:
        text = pipe.read().decode()
    _, status = os.waitpid(runner, 0)
    return Told(text, os.WIFEXITED(status))


def _be_the_runner(
    attack: Callable[[Decoys], Any], decoys: Decoys, wall: Wall, fd: int
) -> NoReturn:
    try:
        _end_by_itself()
        os.setsid()
        confinement = Confinement(_config(decoys, wall))
        child = os.fork()
        if child == 0:
            _end_by_itself()
            os.setsid()
            os.chdir(decoys.workdir)
            system.prctl(system.PR_SET_DUMPABLE, 1)
            confinement.enter()
            os.write(fd, _try(attack, decoys).encode())
            os._exit(0)
        os.waitpid(child, 0)
    except BaseException as error:  # noqa: BLE001 - there is nobody in here to raise it to
        os.write(fd, f"{type(error).__name__}: {error}".encode())
    os._exit(0)


def _end_by_itself() -> None:
    """Should the tests be killed, or an attack never end."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(_LONGEST_S)


def _try(attack: Callable[[Decoys], Any], decoys: Decoys) -> str:
    try:
        return repr(attack(decoys))
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    except BaseException as error:  # noqa: BLE001 - told, and never equal to what is expected
        return f"{type(error).__name__}: {error}"


def _config(decoys: Decoys, wall: Wall) -> Any:
    code = build_filter(
        this_machine(),
        shares_pids=True,
        owns_uid=wall.owns_uid,
        landlock_abi=wall.abi,
        without=wall.without,
    )
    return {
        "read": ["/usr", "/bin", "/lib", "/lib64", str(decoys.library), *wall.read],
        "listed": [],
        "use": _DEVICES,
        "write": [str(decoys.workdir)],
        "filter": base64.b64encode(code).decode(),
        "abi": wall.abi,
        "user": decoys.user,
        "capability": wall.capability,
    }
