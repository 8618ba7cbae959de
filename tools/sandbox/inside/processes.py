"""The processes of the sandbox, as /proc shows them."""

import os
import signal
import time
from contextlib import suppress
from typing import NamedTuple

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE_MB = os.sysconf("SC_PAGE_SIZE") / 2**20
_PATIENCE_S = 10.0
_CAP_KILL = 5


class Process(NamedTuple):
    """One line of /proc."""

    pid: int
    parent: int
    is_zombie: bool
    is_running: bool
    """Or would be, if a core were free."""
    own_cpu_s: float
    children_cpu_s: float
    """Of the children it has waited for."""
    num_threads: int
    rss_mb: float


def read(pid: int) -> "Process | None":
    """A process; `None` if it is gone.

    One whose first thread has ended while others go on looks like a zombie without memory, which it
    is not.
    """
    process = _read(f"/proc/{pid}/stat", pid)
    if process is None or not process.is_zombie or process.num_threads <= 1:
        return process
    threads = [_read(f"{thread}/stat", pid) for thread in tasks(pid)]
    going = [thread for thread in threads if thread is not None and not thread.is_zombie]
    if not going:
        return process
    return process._replace(is_zombie=False, rss_mb=going[0].rss_mb)


def tasks(pid: int) -> list[str]:
    """Folders of its threads; none if it is gone."""
    folder = f"/proc/{pid}/task"
    try:
        return [f"{folder}/{thread}" for thread in os.listdir(folder)]
    except OSError:
        return []


def _read(path: str, pid: int) -> "Process | None":
    try:
        with open(path, "rb", buffering=0) as file:
            text = file.read(1024)
    except OSError:
        return None
    fields = text[text.rindex(b")") + 2 :].split()
    own, children = (sum(map(int, fields[i : i + 2])) / _TICKS for i in (11, 13))
    rss = int(fields[21]) * _PAGE_MB
    is_zombie = fields[0] in (b"Z", b"X")
    is_running = fields[0] == b"R"
    return Process(pid, int(fields[1]), is_zombie, is_running, own, children, int(fields[17]), rss)


def waited_s(pid: int) -> float:
    """Seconds the process was ready to run and had no core; 0 where the kernel does not count."""
    try:
        with open(f"/proc/{pid}/schedstat", "rb", buffering=0) as file:
            return int(file.read(128).split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0


def pss_mb(process: Process) -> float:
    """Resident memory with shared pages divided; all of it where that cannot be read."""
    try:
        with open(f"/proc/{process.pid}/smaps_rollup", "rb") as file:
            lines = [line for line in file if line.startswith(b"Pss:")]
        return int(lines[0].split()[1]) / 1024
    except (OSError, IndexError, ValueError):
        return process.rss_mb


class Family:
    """Which processes belong to the sandbox, the runner left out.

    All of /proc, where the sandbox has process ids of its own; all of its user, where it has one;
    else the runner's descendants, which it inherits when their parents die (it is a subreaper).
    """

    def __init__(self, *, owns_pids: bool, owns_uid: bool) -> None:
        self._runner, self._uid = os.getpid(), os.getuid()
        self._owns_pids = owns_pids and self._runner == 1
        self._owns_uid = owns_uid and self._uid != 0 and self._is_alone()
        if (owns_pids, owns_uid) != (self._owns_pids, self._owns_uid):
            raise RuntimeError("the sandbox shares what it should have for itself")

    def _is_alone(self) -> bool:
        """Whether no other process has this user, and this one has no power over other users'.

        What is stopped and killed later must be the sandbox's alone.
        """
        if _capabilities() >> _CAP_KILL & 1:
            return False
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
        return all(pid == self._runner or owner(pid) != self._uid for pid in pids)

    def members(self) -> list[Process]:
        """Those alive, and zombies."""
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
        if not self._owns_pids and self._owns_uid:
            pids = [pid for pid in pids if owner(pid) == self._uid]
        found = [process for pid in pids if pid != self._runner and (process := read(pid))]
        return found if self._owns_pids or self._owns_uid else self._descendants(found)

    def _descendants(self, found: list[Process]) -> list[Process]:
        children: dict[int, list[Process]] = {}
        for process in found:
            children.setdefault(process.parent, []).append(process)
        family: list[Process] = list(children.get(self._runner, []))
        for process in family:
            family += children.get(process.pid, [])
        return family

    def kill_all(self, spared: int | None = None) -> bool:
        """Kill all but one, again until none is left; whether there was any.

        Zombies are let go last: they count for the limit of processes, at which a chain of ever new
        ones comes to a halt. None is left once two looks in a row see nothing else; orphans become
        children of the runner, so that without any there is nothing to look for.
        """
        if spared is None and not _has_children():
            return False
        found = False
        before: set[int] = set()
        deadline = time.monotonic() + _PATIENCE_S
        while time.monotonic() < deadline:
            self._halt()
            others = [p for p in self.members() if p.pid != spared]
            living = [p.pid for p in others if not p.is_zombie]
            for pid in living:
                _kill(pid)
            if living:
                found = True
                time.sleep(0.0005)
                continue
            reap(spared)
            now = {p.pid for p in others}
            if now == before:
                return found
            before = now
        raise RuntimeError("processes of the sandbox cannot be killed")

    def _halt(self) -> None:
        """Stop all at one instant, so that none can fork itself out of the way.

        Only where nothing else can be hit: the first process of its namespace, or no root.
        """
        reaches_ours = self._runner == 1 if self._owns_pids else self._owns_uid and self._uid != 0
        if reaches_ours:
            with suppress(ProcessLookupError):
                os.kill(-1, signal.SIGSTOP)


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def reap(spared: int | None = None) -> None:
    """Wait for children that have ended, but for one."""
    while True:
        try:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if ended is None or ended.si_pid == spared:
            return
        os.waitpid(ended.si_pid, os.WNOHANG)


def num_threads_of_user() -> int:
    """Threads of this user, in the sandbox and beside it."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    mine = [process for pid in pids if owner(pid) == os.getuid() and (process := read(pid))]
    return sum(process.num_threads for process in mine)


def _capabilities() -> int:
    with open("/proc/self/status", "rb") as file:
        line = next(line for line in file if line.startswith(b"CapEff:"))
    return int(line.split()[1], 16)


def owner(pid: int) -> int:
    """Its uid; -1 if it is gone."""
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            line = next(line for line in file if line.startswith(b"Uid:"))
        return int(line.split()[1])
    except (OSError, StopIteration):
        return -1


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
