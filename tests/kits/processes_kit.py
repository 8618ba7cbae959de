"""Sandboxes of this machine, and the processes that belong to them."""

import os
from collections.abc import Iterable, Iterator

from agentgym.tools.sandbox.bwrap import BwrapLauncher, Way
from agentgym.tools.sandbox.inside.processes import Process, read
from agentgym.tools.sandbox.provider import LocalProvider


def bwrap_launcher() -> BwrapLauncher:
    """Bubblewrap as this user can use it."""
    return BwrapLauncher("/usr/bin/bwrap", Way.INSIDE if os.getuid() == 0 else Way.NONE)


def bwrap_provider(*, warm: int = 0, slots: int | None = None) -> LocalProvider:
    """A provider of bubblewrap's."""
    return LocalProvider(bwrap_launcher(), warm=warm, slots=slots)


def descendants(pid: int) -> list[Process]:
    """Living processes under a process, parents first."""
    everyone = list(_everyone())
    found = [process for process in everyone if process.parent == pid and not process.is_zombie]
    for process in found:
        found += [p for p in everyone if p.parent == process.pid and not p.is_zombie]
    return found


def alive(pids: Iterable[int]) -> list[int]:
    """Which of some processes are there; zombies count, unless they are left to init to clear."""
    found = [process for pid in pids if (process := read(pid))]
    return [p.pid for p in found if not (p.is_zombie and p.parent == 1)]


def _everyone() -> Iterator[Process]:
    for name in os.listdir("/proc"):
        if name.isdigit() and (process := read(int(name))):
            yield process
