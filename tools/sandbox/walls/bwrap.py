"""A sandbox of namespaces, made by bubblewrap: own files, processes, users and network.

As root it is no wall without a user of its own for every sandbox: uid 0 of a user namespace made by
root is still root to the host's files, and the kernel does not limit its processes. So another uid
is taken before bubblewrap starts, or, where that uid could not read Python, after it is done.
"""

import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache, partial
from typing import Any

from agentgym.errors import SandboxError
from agentgym.tools.sandbox.base import Level, Probe, SandboxSpec
from agentgym.tools.sandbox.walls import hints, uids
from agentgym.tools.sandbox.walls.bwrap_view import SCRATCH, WORKDIR, import_paths, view
from agentgym.tools.sandbox.walls.launch import Launch
from agentgym.tools.sandbox.walls.layout import this_machine
from agentgym.tools.sandbox.walls.packages import entries
from agentgym.tools.sandbox.walls.seccomp import namespace_filter
from agentgym.tools.sandbox.walls.starting import data_fds, try_start

_OPTIONS = ("--size", "--perms", "--as-pid-1", "--die-with-parent", "--seccomp")
_NO_USERNS = "--disable-userns"
_UID = 1000
"""What the code takes itself for, where it has a user namespace."""


class Way(Enum):
    """Where the user is changed.

    INSIDE, bubblewrap stays another user's than what it started, so the kernel does not end one
    with the other: there only the control socket tells the runner that the trainer is gone.
    """

    BEFORE = "own uid, then namespaces"
    INSIDE = "namespaces by root, own uid inside"
    NONE = "own user namespace"
    """This process is no root that could change it."""


@dataclass(slots=True)
class BwrapLauncher:
    """Starts the runner as the first process of a PID namespace.

    Args:
        program: path of bubblewrap.
        way: where the user is changed.
    """

    program: str
    way: Way
    backend: str = "bwrap"
    level: Level = Level.NAMESPACES
    gaps: tuple[str, ...] = (
        "shares this kernel",
        "total memory is watched every 50 ms, not capped",
    )

    def prepare(self, spec: SandboxSpec, runner: Callable[[str], Sequence[str]]) -> Launch:
        layout, packages, code = this_machine(), entries(spec.packages), _filter()
        paths = import_paths(layout, packages)
        environment = layout.environment(WORKDIR, import_paths=paths)
        taken = None if self.way is Way.NONE else uids.available().take()
        change = [] if taken is None else uids.change_to(taken)
        release = partial(uids.give_back, taken)
        files = _files(taken if taken is not None and self.way is Way.INSIDE else _UID)
        try:
            calls, *contents = data_fds([code, *files.values()])
        except OSError as error:
            release()
            raise SandboxError(f"no descriptors for a sandbox: {error}") from error
        argv = [
            *(change if self.way is Way.BEFORE else ()),
            self.program,
            *_namespaces(self.way, self.program),
            *_written(dict(zip(files, contents, strict=True))),
            *view(layout, packages, disk_mb=spec.limits.disk_mb),
            *("--seccomp", str(calls)),
            "--",
            *(change if self.way is Way.INSIDE else ()),
            *runner(layout.python),
        ]
        return Launch(
            argv=argv,
            env=environment,
            pass_fds=(calls, *contents),
            config=_config(environment, paths, owns_uid=taken is not None),
            release=release,
        )

    def probes(self) -> tuple[Probe, ...]:
        named = f"{self.program} {version(self.program)}"
        lacking = [option for option in _OPTIONS if option not in _help(self.program)]
        if lacking:
            return (Probe("program", False, f"{named} lacks {', '.join(lacking)}", hints.OLD),)
        return (
            Probe("program", True, named),
            Probe("user", True, self.way.value),
            try_start(self),
        )


def _namespaces(way: Way, program: str) -> Iterator[str]:
    yield from ("--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts")
    yield from ("--unshare-cgroup-try", "--hostname", "sandbox", "--new-session")
    yield from ("--die-with-parent", "--as-pid-1", "--cap-drop", "ALL")
    if way is Way.INSIDE:
        for capability in ("CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP"):
            yield from ("--cap-add", capability)
        return
    yield from ("--unshare-user", "--uid", str(_UID), "--gid", str(_UID))
    if _NO_USERNS in _help(program):
        yield _NO_USERNS


def _files(uid: int) -> dict[str, bytes]:
    """Files that programs look for, by path."""
    return {
        "/etc/passwd": f"sandbox:x:{uid}:{uid}::{WORKDIR}:/bin/sh\n".encode(),
        "/etc/group": f"sandbox:x:{uid}:\n".encode(),
        "/etc/hosts": b"127.0.0.1 localhost sandbox\n::1 localhost\n",
    }


def _written(files: dict[str, int]) -> Iterator[str]:
    for path, fd in files.items():
        yield from ("--perms", "0444", "--file", str(fd), path)


def _config(environment: dict[str, str], paths: list[str], *, owns_uid: bool) -> dict[str, Any]:
    return {
        "workdir": WORKDIR,
        "scratch": list(SCRATCH),
        "remove": [],
        "import_paths": paths,
        "env": environment,
        "owns_pids": True,
        "owns_uid": owns_uid,
        "watch_disk": False,
        "hide": [],
        "confine": None,
    }


_filter = cache(namespace_filter)


@cache
def version(program: str) -> str:
    """Of a bubblewrap, as it tells it."""
    return _ask(program, "--version").removeprefix("bubblewrap ").strip()


@cache
def _help(program: str) -> str:
    return _ask(program, "--help")


def _ask(program: str, option: str) -> str:
    try:
        asked = subprocess.run(
            [program, option], capture_output=True, text=True, timeout=10, env={}, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"(cannot be run: {error})"
    return asked.stdout
