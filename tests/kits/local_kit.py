"""Sandboxes of this machine for tests: one provider per level that starts here, for all of them."""

import os
from functools import cache
from pathlib import Path

from agentgym.tools.sandbox.choosing.choose import launchers as known_launchers
from agentgym.tools.sandbox.host.provider import LocalProvider
from agentgym.tools.sandbox.settings import SandboxSettings
from agentgym.tools.sandbox.walls.launch import Launcher
from agentgym.tools.sandbox.walls.starting import try_start


@cache
def launchers() -> dict[str, Launcher]:
    """What starts here, by name of the level, best first."""
    found: dict[str, Launcher] = {}
    for launcher in known_launchers(SandboxSettings()):
        if launcher.level.name.lower() not in found and _starts(launcher):
            found[launcher.level.name.lower()] = launcher
    return found


def _starts(launcher: Launcher) -> bool:
    return all(probe.ok for probe in launcher.probes()) and try_start(launcher).ok


@cache
def provider(level: str | None = None) -> LocalProvider:
    """The shared provider of a level, the best one if left out; nothing is kept warm."""
    known = launchers()
    assert known, "no sandbox starts on this machine"
    return LocalProvider(known[level or next(iter(known))], warm=0)


def descendants() -> set[int]:
    """Processes below this one, zombies included."""
    parents: dict[int, int] = {}
    for name in filter(str.isdecimal, os.listdir("/proc")):
        try:
            after_name = Path(f"/proc/{name}/stat").read_text(errors="replace").rpartition(")")[2]
        except OSError:
            continue
        parents[int(name)] = int(after_name.split()[1])
    found = {os.getpid()}
    size = 0
    while len(found) > size:
        size = len(found)
        found |= {pid for pid, parent in parents.items() if parent in found}
    return found - {os.getpid()}
