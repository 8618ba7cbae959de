"""What the host sees of an attack's processes: how many, how large, whether any outlives it."""

import os
import threading
import time
from contextlib import suppress
from pathlib import Path

from agentgym.tools.sandbox.limits import Limits

PAGE_MB = os.sysconf("SC_PAGE_SIZE") / 2**20
SLACK_MB = 400.0
"""What a process may grow by between two looks of whoever watches it."""
SLACK_PROCESSES = 8


class Watch:
    """Looks at processes of an attack, found by its mark, while it runs."""

    def __init__(self, mark: str, *, active: bool) -> None:
        self._mark = mark.encode()
        self._active = active
        self.most_mb = 0.0
        self.most_processes = 0

    def __enter__(self) -> "Watch":
        self._open = True
        self._thread = threading.Thread(target=self._look, daemon=True)
        if self._active:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._open = False
        if self._active:
            self._thread.join()

    def harms(self, limits: Limits) -> list[str]:
        harms = []
        if self.most_mb > limits.tree_memory_mb + SLACK_MB:
            harms.append(f"its processes had {self.most_mb:.0f} MB")
        if self.most_processes > limits.processes + SLACK_PROCESSES:
            harms.append(f"it had {self.most_processes} processes")
        return harms

    def _look(self) -> None:
        while self._open:
            pids = [pid for pid in _pids() if _comm(pid).startswith(self._mark)]
            self.most_processes = max(self.most_processes, len(pids))
            self.most_mb = max(self.most_mb, sum(_private_mb(pid) for pid in pids))
            time.sleep(0.03)


def survivors(mark: str, *, wait_s: float) -> list[str]:
    """Processes that carry the mark and do not end within that time; they are killed."""
    deadline = time.monotonic() + wait_s
    while True:
        left = [pid for pid in _pids() if _marked(pid, mark.encode())]
        if not left or time.monotonic() > deadline:
            break
        time.sleep(0.05)
    for pid in left:
        with suppress(OSError):
            os.kill(int(pid), 9)
    return [f"{len(left)} of its processes are left"] if left else []


def _pids() -> list[str]:
    return [name for name in os.listdir("/proc") if name.isdigit()]


def _comm(pid: str) -> bytes:
    try:
        with open(f"/proc/{pid}/comm", "rb", buffering=0) as file:
            return file.read().rstrip(b"\n")
    except OSError:
        return b""


def _marked(pid: str, mark: bytes) -> bool:
    try:
        with open(f"/proc/{pid}/cmdline", "rb", buffering=0) as file:
            return _comm(pid).startswith(mark) or mark in file.read()
    except OSError:
        return False


def _private_mb(pid: str) -> float:
    """Resident memory that is not of files."""
    try:
        _, resident, of_files, *_ = Path(f"/proc/{pid}/statm").read_text().split()
    except (OSError, ValueError):
        return 0.0
    return (int(resident) - int(of_files)) * PAGE_MB
