"""What a call has used so far, and which limit it has passed.

The kernel's own limits act at once but count per process; these are read every few milliseconds
and count the whole family.
"""

import os
import resource
import time

from agentgym.tools.sandbox.inside.config import LimitConfig
from agentgym.tools.sandbox.inside.disk import MAX_INODES, Disk
from agentgym.tools.sandbox.inside.processes import Family, Process, pss_mb, read, waited_s

_MIN_FREE_MB = 1.0
_NUM_CORES = len(os.sched_getaffinity(0))
MAX_STRETCH = 4.0
"""A starved call ends after so many times its wall limit."""


class Meter:
    """One call's use of the machine; begins where it is made.

    Args:
        family: the sandbox's processes.
        limits: what the call may use.
        pid: the process the call is run by; what it has used before does not count.
        folders: where the code can write.
        limits_disk: whether no file system bounds what is written there.
        idle: a stopped process whose memory counts, and nothing else.
    """

    def __init__(
        self,
        family: Family,
        limits: LimitConfig,
        *,
        pid: int,
        folders: "tuple[str, ...]",
        limits_disk: bool,
        idle: int | None = None,
    ) -> None:
        self._family, self._limits = family, limits
        self._pid, self._idle = pid, idle
        self._folders, self._limits_disk = folders, limits_disk
        self._disk = Disk(folders)
        self._start = time.monotonic()
        before = read(pid)
        self._own_before = before.own_cpu_s if before else 0.0
        self._children_before = before.children_cpu_s if before else 0.0
        self._reaped_before = _reaped_cpu_s()
        self._waited_before = waited_s(pid)
        self._lost = _LostTime()
        self._looks = self._crowded_looks = 0
        self.cpu_s = 0.0
        self.waited_s = 0.0
        self.peak_mb = 0.0

    @property
    def wall_s(self) -> float:
        return time.monotonic() - self._start

    def passed_limit(self) -> str | None:
        """The limit the call has passed: its name, or `None`.

        Those of space come first, so that nobody who is given time to stop can pass them meanwhile.
        """
        everyone = self._family.members()
        members = [p for p in everyone if not p.is_zombie]
        active = [p for p in members if p.pid != self._idle]
        time = self._time([p for p in everyone if p.pid != self._idle], active)
        return self._space(members, active) or time

    def _time(self, everyone: list[Process], active: list[Process]) -> str | None:
        limits = self._limits
        self._count_cpu(everyone)
        self.waited_s = max([self.waited_s, *(self._waited(p) for p in active)])
        self._looks += 1
        self._crowded_looks += sum(p.is_running for p in active) > _NUM_CORES
        if max((self._own_s(p) for p in everyone), default=0.0) >= limits["cpu_s"]:
            return "cpu"
        if self.cpu_s >= limits["tree_cpu_s"]:
            return "cpu"
        if self.wall_s - self.waited_s >= limits["wall_s"]:
            return "wall"
        if self.wall_s < MAX_STRETCH * limits["wall_s"]:
            return None
        return "wall" if self._has_starved_itself() else "starved"

    def _count_cpu(self, everyone: list[Process]) -> None:
        """Zombies too: nobody has counted yet what they used."""
        own = {p.pid: self._own_s(p) for p in everyone}
        children = {p.pid: p.children_cpu_s - self._before(p)[1] for p in everyone}
        reaped = _reaped_cpu_s() - self._reaped_before
        if self._pid not in own:
            reaped = max(0.0, reaped - self._own_before - self._children_before)
        lost = self._lost.update(own, children, reaped)
        total = sum(own.values()) + sum(children.values()) + reaped + lost
        self.cpu_s = max(self.cpu_s, total)

    def _has_starved_itself(self) -> bool:
        """Whether it kept more processes running, most of the time, than there are cores."""
        return 2 * self._crowded_looks > self._looks

    def _own_s(self, process: Process) -> float:
        return process.own_cpu_s - self._before(process)[0]

    def _space(self, members: list[Process], active: list[Process]) -> str | None:
        limits = self._limits
        resident = sum(p.rss_mb for p in members)
        if resident > limits["tree_memory_mb"]:
            resident = sum(pss_mb(p) for p in members)
        self.peak_mb = max(self.peak_mb, resident)
        if resident > limits["tree_memory_mb"]:
            return "memory"
        if sum(p.num_threads for p in active) > limits["processes"] + 1:
            return "processes"
        return "disk" if self._disk_is_full(members) else None

    def _before(self, process: Process) -> tuple[float, float]:
        same = process.pid == self._pid
        return (self._own_before, self._children_before) if same else (0.0, 0.0)

    def _waited(self, process: Process) -> float:
        before = self._waited_before if process.pid == self._pid else 0.0
        return waited_s(process.pid) - before

    def _disk_is_full(self, members: list[Process]) -> bool:
        """File systems of the sandbox's own bound bytes each for itself, and no number of files."""
        most = self._limits["disk_mb"] * 2**20
        if self._limits_disk:
            return self._disk.is_full([p.pid for p in members], most)
        if any(_num_inodes(folder) > MAX_INODES for folder in self._folders):
            return True
        return sum(_num_bytes(folder) for folder in self._folders) > most

    def host_fault(self) -> str:
        """What the machine lacks, as opposed to the code: a disk that others have filled."""
        most = self._limits["disk_mb"] * 2**20
        if not self._limits_disk or self._disk.is_full([], most):
            return ""
        status = os.statvfs(self._folders[0])
        free_mb = status.f_bavail * status.f_frsize / 2**20
        return f"{free_mb:.1f} MB left on the disk of the machine" if free_mb < _MIN_FREE_MB else ""


class _LostTime:
    """Processor time of processes that are gone, and that no parent has on its account.

    A parent that ignores its children's ends is told nothing of what they used. One look's patience
    is given, since processes are not looked at all at once.
    """

    def __init__(self) -> None:
        self._own: dict[int, float] = {}
        self._children: dict[int, float] = {}
        self._reaped = self._unpaid = self._lost = 0.0

    def update(self, own: "dict[int, float]", children: "dict[int, float]", reaped: float) -> float:
        """The seconds lost so far, after a look at all processes."""
        gone = [pid for pid in self._own if pid not in own]
        spent = sum(self._own[pid] + self._children[pid] for pid in gone)
        paid = reaped - self._reaped
        paid += sum(total - self._children.get(pid, 0.0) for pid, total in children.items())
        self._lost += max(0.0, self._unpaid - paid)
        self._unpaid = max(0.0, spent - max(0.0, paid - self._unpaid))
        self._own, self._children, self._reaped = own, children, reaped
        return self._lost


def _num_inodes(folder: str) -> int:
    status = os.statvfs(folder)
    return status.f_files - status.f_ffree


def _num_bytes(folder: str) -> int:
    status = os.statvfs(folder)
    return (status.f_blocks - status.f_bfree) * status.f_frsize


def _reaped_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
