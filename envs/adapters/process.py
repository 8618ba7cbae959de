"""Foreign code in processes of its own: with a deadline for every call, and ended for certain.

For libraries with global random state, and for graders that evaluate what a policy wrote.
"""

import atexit
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Any

from agentgym.errors import EnvError

_HOST = Path(__file__).with_name("host.py")
_MAX_ANSWER = 64 * 2**20
VARIABLES = frozenset(
    {"HOME", "LANG", "LD_LIBRARY_PATH", "PATH", "PYTHONPATH", "TMPDIR", "VIRTUAL_ENV"}
)
_live: "weakref.WeakSet[HostProcess]" = weakref.WeakSet()


class HostError(Exception):
    """The code in the process raised; the text names its error."""


class HostProcess:
    """A process that answers one call at a time; it starts with the first one.

    Args:
        kind: what runs in it, a key of `host.HOSTS`.
        idle_s: it ends by itself after so many seconds without a call; 0 for never.
        variables: what it sees of the environment variables.
    """

    def __init__(
        self, kind: str, *, idle_s: float = 0.0, variables: frozenset[str] = VARIABLES
    ) -> None:
        self.kind = kind
        self.variables = variables
        self.idle_s = idle_s
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.RLock()
        self._rest = b""
        self._used = 0.0
        self._num_kills = 0

    @property
    def pid(self) -> int | None:
        """Of the process, if it runs."""
        return self._process.pid if self.is_running and self._process else None

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def call(
        self, method: str, arguments: dict[str, Any], *, timeout_s: float, goes_on: bool = False
    ) -> Any:
        """What a method of the host returns; blocks.

        Args:
            method: of the host.
            arguments: JSON values.
            timeout_s: longest it may take.
            goes_on: it needs what earlier calls left in the process, so another one will not do.

        Raises:
            HostError: it raised.
            EnvError: it took too long or died; the process is gone, the next call starts another.
        """
        num_kills = self._num_kills
        with self._lock:
            try:
                if goes_on and not self.is_running:
                    raise OSError("it had ended before")
                process = self._started(num_kills)
                answer = self._exchange(process, method, arguments, time.monotonic() + timeout_s)
            except TimeoutError as error:
                self._end()
                text = f"{self.kind}: {method} took more than {timeout_s:g} s"
                raise EnvError(text) from error
            except (OSError, ValueError) as error:
                self._end()
                raise EnvError(f"{self.kind}: the process died in {method}: {error}") from error
        if "error" in answer:
            raise HostError(answer["error"])
        return answer["result"]

    def kill(self) -> None:
        """End the process, whatever it is doing, and a call that is about to start one.

        A second call does nothing; a later `call` starts another.
        """
        self._num_kills += 1
        self._end()

    def _end(self) -> None:
        process = self._process
        if process is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        with self._lock:  # a call that waits for an answer lets go of it now
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()
            if self._process is process:
                self._process, self._rest = None, b""

    def _exchange(
        self,
        process: "subprocess.Popen[bytes]",
        method: str,
        arguments: dict[str, Any],
        deadline: float,
    ) -> Any:
        assert process.stdin is not None
        process.stdin.write(json.dumps({"method": method, "arguments": arguments}).encode() + b"\n")
        process.stdin.flush()
        return json.loads(self._line(process, deadline))

    def _started(self, num_kills: int) -> "subprocess.Popen[bytes]":
        """The process; none is left if it was to be killed since `num_kills` was read."""
        is_fresh = not self.idle_s or time.monotonic() - self._used < self.idle_s / 2
        self._used = time.monotonic()
        if self._process is not None and self._process.poll() is None and is_fresh:
            return self._process
        self._end()
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-X", "utf8", str(_HOST), self.kind, str(self.idle_s)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={key: value for key, value in os.environ.items() if key in self.variables},
            start_new_session=True,
        )
        _live.add(self)
        if self._num_kills != num_kills:
            raise OSError("it was ended")
        return self._process

    def _line(self, process: "subprocess.Popen[bytes]", deadline: float) -> bytes:
        assert process.stdout is not None
        file = process.stdout.fileno()
        while b"\n" not in self._rest:
            poller = select.poll()
            poller.register(file, select.POLLIN)
            if not poller.poll(max(0.0, deadline - time.monotonic()) * 1000):
                raise TimeoutError
            chunk = os.read(file, 2**16)
            if not chunk or len(self._rest) > _MAX_ANSWER:
                raise OSError("it ended without an answer")
            self._rest += chunk
        line, _, self._rest = self._rest.partition(b"\n")
        return line


class HostPool:
    """Processes for calls that need none in particular; unused ones end after `idle_s` seconds."""

    def __init__(self, kind: str, *, size: int, idle_s: float) -> None:
        self._kind = kind
        self._idle_s = idle_s
        self._free: list[HostProcess] = []
        self._slots = threading.BoundedSemaphore(size)

    def call(self, method: str, arguments: dict[str, Any], *, timeout_s: float) -> Any:
        """Like `HostProcess.call`, in whichever process is free; waits for one."""
        with self._slots:
            try:
                process = self._free.pop()
            except IndexError:
                process = HostProcess(self._kind, idle_s=self._idle_s)
            try:
                return process.call(method, arguments, timeout_s=timeout_s)
            finally:
                self._free.append(process)

    def close(self) -> None:
        """End those that are free; later calls start new ones."""
        while self._free:
            self._free.pop().kill()


def _kill_all() -> None:
    for process in list(_live):
        process.kill()


atexit.register(_kill_all)
