"""Names that say which process they belong to, among all there ever were on a machine."""

import os

from agentgym.pids import namespace, started

PREFIX = "agentgym-sandbox-"


def mark() -> str:
    """Begins the names of this process: its id, when it started, its PID namespace."""
    return f"{PREFIX}{os.getpid()}-{started(os.getpid())}-{namespace()}-"


def is_left(name: str) -> bool:
    """Whether the process that a name belongs to was one of this PID namespace and is gone."""
    pid, since, place, *_ = [*name.removeprefix(PREFIX).split("-"), "", "", ""]
    if not name.startswith(PREFIX) or not pid.isdigit() or place != namespace():
        return False
    try:
        return started(int(pid)) != since
    except OSError:  # nobody can tell
        return False
