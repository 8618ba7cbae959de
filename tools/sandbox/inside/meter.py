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
        self.cpu_s = 0.0
        self.waited_s = 0.0
        self.peak_mb = 0.0

    @property
    def wall_s(self) -> float:
        return time.monotonic() - self._start

    def passed_limit(self) -> str | None:
        """The limit the call has passed: its name, or `None`."""
        members = [p for p in self._family.members() if not p.is_zombie]
        active = [p for p in members if p.pid != self._idle]
        return self._time(active) or self._space(members, active)

    def _time(self, active: list[Process]) -> str | None:
        limits = self._limits
        own = {p.pid: p.own_cpu_s - self._before(p)[0] for p in active}
        children = sum(p.children_cpu_s - self._before(p)[1] for p in active)
        reaped = _reaped_cpu_s() - self._reaped_before
        self.cpu_s = max(self.cpu_s, sum(own.values()) + children + reaped)
        self.waited_s = max([self.waited_s, *(self._waited(p) for p in active)])
        if max(own.values(), default=0.0) >= limits["cpu_s"]:
            return "cpu"
        if self.cpu_s >= limits["tree_cpu_s"]:
            return "cpu"
        if self.wall_s - self.waited_s >= limits["wall_s"]:
            return "wall"
        return "starved" if self.wall_s >= MAX_STRETCH * limits["wall_s"] else None

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
        if not self._limits_disk:
            return ""
        status = os.statvfs(self._folders[0])
        free_mb = status.f_bavail * status.f_frsize / 2**20
        return f"{free_mb:.1f} MB left on the disk of the machine" if free_mb < _MIN_FREE_MB else ""


def _num_inodes(folder: str) -> int:
    status = os.statvfs(folder)
    return status.f_files - status.f_ffree


def _num_bytes(folder: str) -> int:
    status = os.statvfs(folder)
    return (status.f_blocks - status.f_bfree) * status.f_frsize


def _reaped_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
