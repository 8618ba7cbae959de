"""The kernel's system calls: their numbers by machine, and what each is to a sandbox.

Numbers are from the kernel's own headers (asm/unistd_64.h, asm-generic/unistd.h; calls after 6.1
from its syscall tables, where they have one number everywhere). A machine without a column in the
table is refused. A call that the table lacks, such as a newer one, does not exist for the code.
"""

import platform
import struct
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import NamedTuple

from agentgym.errors import UsageError

_TABLE = Path(__file__).parent / "data" / "syscalls.txt"
_X32 = 0x40000000
_NO_OTHER_ABI = 0x80000000


class Group(StrEnum):
    """Why a call may be made, or not."""

    ALWAYS = "always"
    """Acts on the process itself, or on files that the wall lets be opened."""
    BY_ARGUMENT = "by_argument"
    """Has a rule of its own."""
    WITHOUT_EFFECT = "without_effect"
    """Succeeds and does nothing: a program that makes itself wait is not to look starved by others,
    and none is to slow the machine."""
    ATTRIBUTES = "attributes"
    """Extended attributes: not supported, as on many file systems; no limit counts their space."""
    MISSING = "missing"
    """Does not exist: programs take an older call, whose arguments can be looked at."""
    REFUSED = "refused"
    """Other processes, uncounted memory, namespaces, the machine, wide or young parts of the
    kernel."""

    SIGNALS = "signals"
    """Beside the host, the rest are closed or bent."""
    MODES = "modes"
    TIMES = "times"
    OWNERS = "owners"
    NETWORK = "network"
    """Connects, or passes descriptors on."""
    WATCHING = "watching"
    """Tells what others do with files."""


class Call(NamedTuple):
    """A system call of one machine."""

    number: int
    group: Group


class Machine(NamedTuple):
    """How a kind of processor names and numbers calls."""

    audit_arch: int
    """Its name in `seccomp_data.arch`."""
    end: int
    """Numbers from here on are another ABI's, such as x32."""
    calls: dict[str, Call]


@cache
def machine(name: str) -> Machine:
    """The table of a machine, by the name that `uname -m` gives it.

    Raises:
        UsageError: there is none.
    """
    column, audit_arch, end = _known(name)
    lines = [line.split() for line in _TABLE.read_text().splitlines() if line[0] != "#"]
    has = [line for line in lines if line[column] != "-"]
    calls = {line[0]: Call(int(line[column]), Group(line[3])) for line in has}
    return Machine(audit_arch, end, calls)


def this_machine() -> str:
    """Name of the machine this process runs on.

    Raises:
        UsageError: the process is not a native 64-bit one, whose calls the filter would kill.
    """
    if struct.calcsize("P") != 8:
        raise UsageError("a 32-bit Python cannot be sandboxed: use a 64-bit one")
    return platform.machine()


def _known(name: str) -> tuple[int, int, int]:
    if name == "x86_64":
        return 1, 0xC000003E, _X32
    if name == "aarch64":
        return 2, 0xC00000B7, _NO_OTHER_ABI
    hint = "run on x86_64 or aarch64, or in a remote sandbox (backend e2b)"
    raise UsageError(f"no system call filter for machine {name!r}: {hint}")
