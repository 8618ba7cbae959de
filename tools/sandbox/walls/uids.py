"""A user of its own for every sandbox, where this process may change users.

Processes of one uid can signal each other and share the kernel's count of processes, so no two
sandboxes get the same one. They are drawn at random from a range that no distribution hands out:
two runs on a machine need not know of each other.
"""

import os
import random
import stat
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from agentgym.errors import SandboxError

_UNUSED = range(0x70000000, 0x7FFE0000)
"""Set aside by systemd's conventions, which name every other range."""
_FEW = range(40_000, 60_000)
"""Where only 65,536 are mapped: above those of people, below those of services."""
CHANGES_USER = "/usr/bin/setpriv"
_CAP_SETPCAP = 8
_CAPABILITIES = {"CAP_SETUID": 7, "CAP_SETGID": 6}


class Uids(NamedTuple):
    """Which uids this process can take on."""

    free: range
    reason: str
    """Why there are none; empty if there are."""

    def take(self) -> int:
        """One that no sandbox of this process has.

        Raises:
            SandboxError: all are taken, or there are none.
        """
        if not self.free:
            raise SandboxError(f"no other user for a sandbox: {self.reason}")
        with _lock:
            for _ in range(1000):
                uid = random.SystemRandom().choice(self.free)
                if uid not in _taken:
                    _taken.add(uid)
                    return uid
        raise SandboxError(f"no uid is left between {self.free.start} and {self.free.stop}")


_taken: set[int] = set()
_lock = threading.Lock()


def available() -> Uids:
    """The uids that are also gids of this user namespace, if this process may change users."""
    if os.geteuid() != 0:
        return Uids(range(0), f"uid {os.geteuid()} cannot change users")
    lacking = [name for name, bit in _CAPABILITIES.items() if not has_capability(bit)]
    if lacking:
        return Uids(range(0), f"root without {' and '.join(lacking)}")
    for wanted in (_UNUSED, _FEW):
        if all(_mapped(wanted, kind) for kind in ("uid", "gid")):
            return Uids(wanted, "")
    return Uids(range(0), "root of a user namespace without further users")


def give_back(uid: int | None) -> None:
    """Let a uid be taken again, once no process has it; `None` is none."""
    with _lock:
        _taken.discard(uid or 0)


def change_to(uid: int) -> list[str]:
    """The words before a command that make it another user's, without any further privilege.

    A program does it: what changes the user between fork and exec cannot share this process's
    memory until then, and copying the tables of a large trainer takes long.
    """
    words = [CHANGES_USER, f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]
    bounds = ["--bounding-set=-all"] if has_capability(_CAP_SETPCAP) else []
    return [*words, *bounds, "--inh-caps=-all", "--no-new-privs", "--"]


def can_change() -> bool:
    """Whether there are uids to change to, and the program that does it."""
    return bool(available().free) and os.access(CHANGES_USER, os.X_OK)


def has_capability(bit: int) -> bool:
    """Whether this process has a capability in effect."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> bit & 1)
    return False


def is_real_root() -> bool:
    """Whether uid 0 here is uid 0 of the machine."""
    first, *_ = Path("/proc/self/uid_map").read_text().splitlines()
    return os.geteuid() == 0 and first.split()[:2] == ["0", "0"]


def _mapped(wanted: range, kind: str) -> bool:
    """Whether all of a range is mapped by one line of this namespace's map."""
    for line in Path(f"/proc/self/{kind}_map").read_text().splitlines():
        inside, _, count = map(int, line.split())
        if inside <= wanted.start and wanted.stop <= inside + count:
            return True
    return False


def closed_to_others(paths: Iterable[str]) -> str | None:
    """The first file or folder on the way to these paths that a stranger may not enter or read."""
    for path in paths:
        for folder in reversed(Path(path).parents):
            if not folder.stat().st_mode & stat.S_IXOTH:
                return str(folder)
        mode = os.stat(path).st_mode
        needed = stat.S_IROTH | (stat.S_IXOTH if stat.S_ISDIR(mode) else 0)
        if mode & needed != needed:
            return path
    return None
