"""Which process an id means, among all that ever had it on a machine."""

import os
from functools import cache
from pathlib import Path

_ENDED = (b"Z", b"X")
"""States of a process that nobody has asked about yet."""
_STATE, _START_TIME = 0, 19
"""Places in /proc/PID/stat after the name."""


@cache
def namespace() -> str:
    """The PID namespace of this process.

    Raises:
        OSError: this system tells nothing of processes.
    """
    return str(os.stat("/proc/self/ns/pid").st_ino)


def started(pid: int) -> str:
    """When a process was started, in ticks of the machine; empty if there is none, or it has ended.

    Raises:
        OSError: it cannot be told.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    fields = text[text.rindex(b")") + 2 :].split()
    return "" if fields[_STATE] in _ENDED else fields[_START_TIME].decode()
