"""Whether the other processes of a run still live, as far as this one can see: on its machine.

A process that is killed tells nobody, and who waits for it would wait for ever.
"""

import os
from pathlib import Path

from agentgym.pids import namespace, started


def own_sign() -> str:
    """By which others find this process; empty where it cannot be found."""
    try:
        return f"{_place()}|{os.getpid()}|{started(os.getpid())}"
    except OSError:
        return ""


def is_gone(sign: str) -> bool:
    """Whether the process of a sign has ended; false if it cannot be seen from here."""
    place, _, process = sign.partition("|")
    pid, _, since = process.partition("|")
    try:
        return place == _place() and started(int(pid)) != since
    except OSError:
        return False


def _place() -> str:
    """This machine since it was started, and what of its processes can be seen from here."""
    machine = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return f"{machine} {namespace()}"
