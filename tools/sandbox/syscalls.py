"""Numbers of the kernel's system calls, by machine.

Taken from the kernel's own headers (asm/unistd_64.h, asm-generic/unistd.h; calls after 6.1 from its
syscall tables, where they have one number everywhere). A machine without a table is refused.
"""

import platform
import struct
from functools import cache
from pathlib import Path
from typing import NamedTuple

from agentgym.errors import UsageError

_TABLE = Path(__file__).parent / "data" / "syscalls.txt"
_X32 = 0x40000000
_NUMBERS_END = 0x80000000


class Machine(NamedTuple):
    """How a kind of processor names and numbers calls."""

    audit_arch: int
    """Its name in `seccomp_data.arch`."""
    end: int
    """Numbers from here on are another ABI's, such as x32."""
    numbers: dict[str, int]


@cache
def machine(name: str) -> Machine:
    """The table of a machine, by the name that `uname -m` gives it.

    Raises:
        UsageError: there is none.
    """
    column, audit_arch, end = _known(name)
    lines = [line.split() for line in _TABLE.read_text().splitlines() if line[0] != "#"]
    numbers = {line[0]: int(line[column]) for line in lines if line[column] != "-"}
    return Machine(audit_arch, end, numbers)


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
        return 2, 0xC00000B7, _NUMBERS_END
    hint = "run on x86_64 or aarch64, or in a remote sandbox (backend e2b)"
    raise UsageError(f"no system call filter for machine {name!r}: {hint}")
