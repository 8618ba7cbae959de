"""Clears up after sandboxes on the host's file system, also after those of a run that was killed.

No folder is touched before the processes are gone that could still put links in the way, and none
that belongs to another user.
"""

import os
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from agentgym.tools.sandbox.inside import folders, processes
from agentgym.tools.sandbox.walls import uids
from agentgym.tools.sandbox.walls.folder import Folder
from agentgym.tools.sandbox.walls.marks import PREFIX, is_left

_ROUNDS = 200
_PAUSE_S = 0.005


def clear_up(uid: int | None, folder: Folder | None) -> None:
    """After one sandbox: end what is left of its user, delete its folder, free its uid."""
    if uid is not None:
        end_all_of(uid)
    if folder is not None:
        folder.remove()
    uids.give_back(uid)


def sweep() -> int:
    """Delete the folders of processes that are gone; how many those were."""
    found = [path for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*") if is_left(path.name)]
    return sum(_sweep(path) for path in found)


def _sweep(path: Path) -> bool:
    with suppress(OSError):
        owner = path.lstat().st_uid
        if owner in uids.available().free:
            end_all_of(owner)
        elif owner != os.geteuid():
            return False
        folders.remove(str(path))
    return not path.exists()


def end_all_of(uid: int) -> None:
    """Kill every process of a sandbox's user, again until there is none."""
    assert uid in uids.available().free
    for _ in range(_ROUNDS):
        pids = list(_processes_of(uid))
        if not pids:
            return
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_PAUSE_S)


def _processes_of(uid: int) -> Iterator[int]:
    """Those that run: zombies, which only wait to be looked at, hold nothing."""
    for name in os.listdir("/proc"):
        if name.isdigit() and processes.owner(int(name)) == uid:
            process = processes.read(int(name))
            if process is not None and not process.is_zombie:
                yield process.pid
