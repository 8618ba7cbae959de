"""What the attacks of the self-test aim at: made for them, and gone afterwards."""

import os
import secrets
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pydantic

import agentgym
from agentgym.errors import SandboxError
from agentgym.tools.sandbox.limits import MIB, Limits
from agentgym.tools.sandbox.walls.layout import this_machine
from agentgym.tools.sandbox.walls.uids import is_real_root

_VARIABLES = [
    *("PATH", "HOME", "USER", "LANG", "LC_CTYPE", "PWD", "OLDPWD", "SHLVL", "_", "TMPDIR"),
    *("PYTHONPATH", "PYTHONHASHSEED", "PYTHONDONTWRITEBYTECODE", "GIT_CONFIG_NOSYSTEM"),
    *("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"),
]
"""What code in a sandbox has, and Python and shells add."""


def _owned_by_root() -> str:
    """A folder that code may read; empty if this process is not root or there is none."""
    if not is_real_root():
        return ""
    roots = this_machine().roots
    return next((root for root in roots if os.stat(root).st_uid == 0), "")


class Aims:
    """A file that anyone may read and write, servers, and a process, while it is entered."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], Any]] = []
        self._marker = f"probe-{secrets.token_hex(8)}"

    def __enter__(self) -> Self:
        try:
            self._make()
        except OSError as error:
            self._clear_up()
            raise SandboxError(f"the self-test cannot be set up: {error}") from error
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._clear_up()

    def known(self, limits: Limits) -> dict[str, Any]:
        """What the attacks are told; the limits are those they run under."""
        return {
            "secrets": [str(self._file), agentgym.__file__, pydantic.__file__],
            "writable": str(self._file),
            "variables": _VARIABLES,
            "owned_by_root": _owned_by_root(),
            "marker": self._marker,
            "pid": self._process.pid,
            "port": self._port,
            "socket": str(self._folder / "socket"),
            "too_much": (limits.memory_mb + 64) * MIB,
            "limits": {
                "RLIMIT_AS": limits.memory_mb * MIB,
                "RLIMIT_FSIZE": limits.file_mb * MIB,
                "RLIMIT_NOFILE": limits.open_files,
                "RLIMIT_CPU": limits.cpu_s + 2,
                "RLIMIT_CORE": 0,
            },
        }

    def damage(self) -> dict[str, str]:
        """What was done to them, by the name of the attack."""
        harm = {}
        if self._file.read_text() != self._marker:
            harm["files cannot be changed"] = f"{self._file} was changed"
        if self._process.poll() is not None:
            harm["processes cannot be killed"] = "a process of this machine was killed"
        return harm

    def _make(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="agentgym-probe-"))
        self._undo.append(lambda: shutil.rmtree(self._folder, ignore_errors=True))
        self._folder.chmod(0o755)
        self._file = self._folder / "file"
        self._file.write_text(self._marker)
        self._file.chmod(0o666)
        self._port = self._listen(socket.AF_INET, ("127.0.0.1", 0)).getsockname()[1]
        self._listen(socket.AF_UNIX, f"\0{self._marker}")
        self._listen(socket.AF_UNIX, str(self._folder / "socket"))
        (self._folder / "socket").chmod(0o777)
        command = ["/bin/sh", "-c", "read line", self._marker]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self._undo += [self._process.communicate, self._process.kill]

    def _listen(self, family: int, address: Any) -> socket.socket:
        server = socket.socket(family, socket.SOCK_STREAM)
        self._undo.append(server.close)
        server.bind(address)
        server.listen()
        return server

    def _clear_up(self) -> None:
        while self._undo:
            self._undo.pop()()
