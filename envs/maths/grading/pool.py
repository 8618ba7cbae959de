"""Processes that do algebra under a deadline which nothing can overrun.

Signals work in one thread only and stop no long multiplication; a process can always be killed.
Processes are started when they are needed, used again, and replaced after a kill. They end with
this one: at exit, and by themselves once their input is closed.
"""

import atexit
import contextlib
import importlib.util
import json
import os
import select
import subprocess
import sys
import threading
import time
from pathlib import Path

from agentgym.errors import MissingExtraError

_SCRIPT = Path(__file__).with_name("worker.py")
_START_S = 30.0
_SIZE = 2


def require() -> None:
    """Check that the algebra system is there.

    Raises:
        MissingExtraError: it is not.
    """
    if importlib.util.find_spec("math_verify") is None:
        raise MissingExtraError("comparing expressions by algebra", "math")


class _Process:
    """One worker; used by one thread at a time."""

    def __init__(self) -> None:
        self._popen = subprocess.Popen(
            [sys.executable, "-P", str(_SCRIPT)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._is_ready = False

    def ask(self, job: dict[str, object], seconds: float) -> bool | None:
        """The worker's answer; `None` if there was none in time."""
        assert self._popen.stdin is not None
        try:
            if not self._is_ready and self._read(_START_S) is None:
                return None
            self._is_ready = True
            self._popen.stdin.write(json.dumps(job).encode() + b"\n")
            self._popen.stdin.flush()
            return self._read(seconds)
        except (OSError, ValueError):  # the process is gone, or closed at exit
            return None

    def _read(self, seconds: float) -> bool | None:
        assert self._popen.stdout is not None
        descriptor = self._popen.stdout.fileno()
        line, end = b"", time.monotonic() + seconds
        while not line.endswith(b"\n"):
            left = end - time.monotonic()
            poller = select.poll()
            poller.register(descriptor, select.POLLIN)
            if left <= 0 or not poller.poll(left * 1000):
                return None
            if not (read := os.read(descriptor, 64)):
                return None
            line += read
        return bool(json.loads(line))

    def kill(self) -> None:
        self._popen.kill()
        self._popen.wait()
        self.let_go()

    def let_go(self) -> None:
        """Close this side of the pipes."""
        for pipe in (self._popen.stdin, self._popen.stdout):
            assert pipe is not None
            with contextlib.suppress(OSError):
                pipe.close()


class Pool:
    """At most `size` processes; callers from any thread wait for a free one."""

    def __init__(self, size: int = _SIZE) -> None:
        self._size = size
        self._forget()

    def _forget(self) -> None:
        self._free: list[_Process] = []
        self._all: set[_Process] = set()
        self._lock = threading.Lock()
        self._slots = threading.BoundedSemaphore(self._size)

    def same(self, a: str, b: str, *, tolerance: float, seconds: float) -> bool:
        """Whether two LaTeX texts are equal by algebra; no if that is not known in time.

        Raises:
            MissingExtraError: the algebra system is not installed.
        """
        require()
        job: dict[str, object] = {"a": a, "b": b, "tolerance": tolerance, "seconds": seconds}
        with self._slots:
            process = self._take()
            answer = process.ask(job, seconds)
            self._give_back(process, usable=answer is not None)
        return bool(answer)

    def _take(self) -> _Process:
        with self._lock:
            return self._free.pop() if self._free else self._start()

    def _start(self) -> _Process:
        process = _Process()
        self._all.add(process)
        return process

    def _give_back(self, process: _Process, *, usable: bool) -> None:
        with self._lock:
            is_ours = process in self._all
            if is_ours and usable:
                self._free.append(process)
                return
            self._all.discard(process)
            if is_ours:
                self._free.append(self._start())  # loads while nobody waits for it
        process.kill()

    def close(self) -> None:
        """End all processes; a later call starts new ones."""
        with self._lock:
            processes, self._free = list(self._all), []
            self._all.clear()
        for process in processes:
            process.kill()

    def pids(self) -> list[int]:
        """Of the processes that run."""
        with self._lock:
            return [process._popen.pid for process in self._all]

    def after_fork(self) -> None:
        """The processes belong to the parent: the child starts its own."""
        for process in self._all:
            process.let_go()
        self._forget()


POOL = Pool()
atexit.register(POOL.close)
os.register_at_fork(after_in_child=POOL.after_fork)
