"""Whether the other processes of a run still live, as far as this one can see: on its machine.

A process that is killed tells nobody, and who waits for it would wait for ever.
"""

import os
from pathlib import Path

_ENDED = "ZX"
"""States of a process that nobody has asked about yet."""
_STARTED = 19
"""Place of the time of start, counted from the state."""


def own_sign() -> str:
    """By which others find this process; empty where it cannot be found."""
    try:
        return f"{_place()}|{os.getpid()}|{_started(str(os.getpid()))}"
    except OSError:
        return ""


def is_gone(sign: str) -> bool:
    """Whether the process of a sign has ended; false if it cannot be seen from here."""
    place, _, process = sign.partition("|")
    pid, _, started = process.partition("|")
    try:
        return place == _place() and _started(pid) != started
    except OSError:
        return False


def _place() -> str:
    """This machine since it was started, and what of its processes can be seen from here."""
    machine = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return f"{machine} {os.readlink('/proc/self/ns/pid')}"


def _started(pid: str) -> str | None:
    """When a process was started; `None` if there is none of that number."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in _ENDED else fields[_STARTED]
