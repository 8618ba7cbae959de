"""Sandboxes of this machine, and the processes that belong to them."""

import os
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

from agentgym.tools.sandbox.host.provider import LocalProvider
from agentgym.tools.sandbox.inside.processes import Process, read
from agentgym.tools.sandbox.walls import bwrap_find
from agentgym.tools.sandbox.walls.bwrap import BwrapLauncher


def bwrap_launcher() -> BwrapLauncher:
    """A new one of bubblewrap's, as this user can use it; skips where it does not start."""
    found = _bwrap()
    if found is None:
        pytest.skip("bubblewrap does not start here")
    return BwrapLauncher(found.program, found.way)


@cache
def _bwrap() -> BwrapLauncher | None:
    candidates = bwrap_find.launchers()
    return next((c for c in candidates if all(probe.ok for probe in c.probes())), None)


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


def name(pid: int) -> str:
    """Of the program it runs; empty once it is gone."""
    try:
        return Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
    except OSError:
        return ""


def _everyone() -> Iterator[Process]:
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        if process := read(int(pid)):
            yield process
