"""Names that say which process they belong to, among all there ever were on a machine."""

import os
from functools import cache
from pathlib import Path

PREFIX = "agentgym-sandbox-"
_START_TIME = 19
"""Place in /proc/PID/stat after the name."""


def mark() -> str:
    """Begins the names of this process: its id, when it started, its PID namespace."""
    return f"{PREFIX}{os.getpid()}-{_started(os.getpid())}-{_namespace()}-"


def is_left(name: str) -> bool:
    """Whether the process that a name belongs to was one of this PID namespace and is gone."""
    pid, started, namespace, *_ = [*name.removeprefix(PREFIX).split("-"), "", "", ""]
    if not name.startswith(PREFIX) or not pid.isdigit() or namespace != _namespace():
        return False
    return _started(int(pid)) != started


@cache
def _namespace() -> str:
    return str(os.stat("/proc/self/ns/pid").st_ino)


def _started(pid: int) -> str:
    """When a process was started, in ticks of the machine; empty if there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return ""
    return text[text.rindex(b")") + 2 :].split()[_START_TIME].decode()
