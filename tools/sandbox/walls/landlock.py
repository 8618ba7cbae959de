"""A wall for machines that refuse namespaces: Landlock and a system call filter, around each child.

Files and network are closed by the kernel, but processes, users and the file system stay the
host's. As root every sandbox has a user of its own, which closes most of the rest; where that user
could not read Python, its processes keep the one capability to read, which Landlock bounds.
"""

import base64
import os
import sysconfig
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, NamedTuple

from agentgym.errors import UsageError
from agentgym.tools.sandbox.base import Level, Probe, SandboxSpec
from agentgym.tools.sandbox.inside import landlock
from agentgym.tools.sandbox.inside.config import ConfineConfig
from agentgym.tools.sandbox.walls import hints, uids
from agentgym.tools.sandbox.walls.folder import Folder, make_folder
from agentgym.tools.sandbox.walls.launch import Launch
from agentgym.tools.sandbox.walls.layout import Layout, this_machine
from agentgym.tools.sandbox.walls.leftovers import clear_up, sweep
from agentgym.tools.sandbox.walls.packages import Entry, entries
from agentgym.tools.sandbox.walls.seccomp import build_filter
from agentgym.tools.sandbox.walls.starting import try_start
from agentgym.tools.sandbox.walls.syscalls import this_machine as this_kind

_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_HARMLESS = ("/proc/cpuinfo", "/proc/meminfo")
_READS_ALL, _READS_AND_WRITES_ALL = 2, 1
"""CAP_DAC_READ_SEARCH, and CAP_DAC_OVERRIDE, which is all that Docker gives."""
_OLD_KERNEL = "it takes Linux 5.13 or newer, booted with `lsm=landlock,...`"


@dataclass(slots=True)
class LandlockLauncher:
    """Starts the runner as a plain process, whose children close themselves in.

    Args:
        abi: Landlock's version; less than the kernel has makes it act as an older one.
        without: calls to leave out of the filter, for tests of what it is there for.
    """

    abi: int = field(default_factory=landlock.version)
    without: tuple[str, ...] = ()
    backend: str = "landlock"
    level: Level = Level.LANDLOCK
    gaps: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.gaps = tuple(_gaps(self.abi))

    def prepare(self, spec: SandboxSpec, runner: Callable[[str], Sequence[str]]) -> Launch:
        _sweep_once()
        layout, packages = this_machine(), entries(spec.packages)
        uid = uids.available().take() if uids.available().free else None
        try:
            capability = None if uid is None else _capability(layout, packages)
            folder = make_folder(packages, owner=uid)
        except BaseException:
            uids.give_back(uid)
            raise
        user = Change(uid, capability)
        config = {
            **_config(layout, folder, has_packages=bool(packages)),
            "owns_uid": uid is not None,
            "confine": self._confine(layout, packages, folder, user),
        }
        return Launch(
            argv=runner(layout.python),
            env=config["env"],
            user=None if user.by_the_runner else uid,
            config=config,
            release=partial(clear_up, uid, folder),
        )

    def _confine(
        self, layout: Layout, packages: Sequence[Entry], folder: Folder, user: "Change"
    ) -> ConfineConfig:
        allowed = layout.allowed()
        code = build_filter(
            this_kind(),
            shares_pids=True,
            owns_uid=user.binds,
            landlock_abi=self.abi,
            without=self.without,
        )
        return {
            "read": [*allowed.paths, *_HARMLESS, folder.packages, *(e.path for e in packages)],
            "listed": [folder for folder in allowed.listed if _is_imported_from(folder)],
            "use": list(_DEVICES),
            "write": [folder.workdir, folder.scratch],
            "filter": base64.b64encode(code).decode(),
            "abi": self.abi,
            "user": user.uid if user.by_the_runner else None,
            "capability": user.capability,
        }

    def probes(self) -> tuple[Probe, ...]:
        found = (_kernel(self.abi), _filter_table(), _user())
        return (*found, try_start(self)) if all(probe.ok for probe in found) else found


def _config(layout: Layout, folder: Folder, *, has_packages: bool) -> dict[str, Any]:
    paths = [folder.packages] if has_packages else []
    environment = layout.environment(folder.workdir, import_paths=paths)
    return {
        "workdir": folder.workdir,
        "scratch": [folder.scratch],
        "remove": [folder.path],
        "import_paths": paths,
        "env": {**environment, "TMPDIR": folder.scratch, "GIT_CONFIG_NOSYSTEM": "1"},
        "owns_pids": False,
        "watch_disk": True,
        "hide": [],
    }


@cache
def _sweep_once() -> None:
    sweep()


def _is_imported_from(folder: str) -> bool:
    """Imports list their folders, also those that hold something closed."""
    return folder == os.path.realpath(sysconfig.get_path("stdlib"))


class Change(NamedTuple):
    """Of users."""

    uid: int | None
    """`None`: there is none."""
    capability: int | None
    """Kept, so that Python can be read."""

    @property
    def by_the_runner(self) -> bool:
        """A stranger could not even start Python."""
        return self.capability is not None

    @property
    def binds(self) -> bool:
        """Whether permissions keep the code from changing files outside."""
        return self.uid is not None and self.capability != _READS_AND_WRITES_ALL


def _capability(layout: Layout, packages: Sequence[Entry]) -> int | None:
    """What a stranger must keep to read what is open to the code; `None` if others may anyway.

    Raises:
        UsageError: this process has nothing of the kind to give.
    """
    closed = uids.closed_to_others(
        [*layout.roots, *(entry.path for entry in packages), tempfile.gettempdir()]
    )
    if closed is None:
        return None
    for capability in (_READS_ALL, _READS_AND_WRITES_ALL):
        if uids.has_capability(capability):
            return capability
    raise UsageError(f"other users may not enter {closed}: {hints.UNREADABLE}")


def _gaps(abi: int) -> Iterator[str]:
    yield "shares this kernel, its processes and file systems: what exists can be seen, not read"
    yield "total memory, processes and disk are watched every 50 ms, not capped"
    if any(_is_imported_from(folder) for folder in this_machine().allowed().listed):
        yield "names of installed packages can be listed"
    yield "no multiprocessing.Pool, no sockets"
    if not uids.available().free:
        yield "chmod and utime have no effect, limits by user are shared"
        if abi < landlock.SCOPES_SIGNALS:
            yield "programs can signal nothing but themselves (Linux before 6.12)"
    elif uids.closed_to_others(this_machine().roots):
        yield "only Landlock keeps files closed, not permissions, as Python is in a private folder"


def _kernel(abi: int) -> Probe:
    if abi > 0:
        return Probe("landlock", True, f"version {abi}")
    return Probe("landlock", False, "this kernel has none, or does not let it be used", _OLD_KERNEL)


def _filter_table() -> Probe:
    try:
        build_filter(this_kind(), shares_pids=True)
    except UsageError as error:
        return Probe("filter", False, str(error))
    return Probe("filter", True, f"a table for {this_kind()}")


def _user() -> Probe:
    free = uids.available()
    return Probe("user", True, "own uid for each" if free.free else f"this user: {free.reason}")
