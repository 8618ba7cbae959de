"""Protections of the sandbox: the words that are one, and the attack it is there for.

One attack may be held off twice, by a limit and by a watch: then both are taken out, or the attack
is one that only the first holds off.
"""

from typing import NamedTuple

ROOT, ANYONE, ORDINARY = "root", "anyone", "ordinary"


class Edit(NamedTuple):
    """Words of a module under `agentgym.tools.sandbox`, and what stands there instead."""

    module: str
    old: str
    new: str


class Mutation(NamedTuple):
    """One protection, and how it is removed."""

    name: str
    backend: str
    attack: str
    edits: tuple[Edit, ...]
    needs: str = ANYONE
    """Who runs it: for others something else holds the attack off."""


def without(name: str, backend: str, attack: str, calls: str, needs: str = ANYONE) -> Mutation:
    """Calls are left out of the filter."""
    edit = Edit("walls.seccomp", "for name in without}", f"for name in {tuple(calls.split())!r}}}")
    return Mutation(name, backend, attack, (edit,), needs)


_WITHOUT_EFFECT = "setpriority sched_setscheduler sched_setaffinity ioprio_set"
_LEAKY = Edit("host.connection", "env=dict(launch.env)", "env={**os.environ, **launch.env}")
_UNWATCHED = Edit("inside.meter", 'return "memory"', "return None")
_LINGERING = Edit(
    "inside.runner",
    "self._family.kill_all(spared=None if self._kernel is None else self._kernel.pid)",
    "pass",
)
_BWRAP = (
    ("clean environment", "a02_env_secrets", _LEAKY),
    ("own network", "a03_sockets", Edit("walls.bwrap", '"--unshare-net", ', "")),
    (
        "number of files", "b12_inodes",
        Edit("inside.meter", "_num_inodes(folder) > MAX_INODES", "_num_inodes(folder) < 0"),
    ),
    (
        "which folders are there", "a01_host_files",
        Edit(
            "walls.bwrap_view", '*("--proc",',
            '*_parents(["/var/tmp"]), *("--ro-bind", "/var/tmp", "/var/tmp", "--proc",',
        ),
    ),
    (
        "runner cannot be traced", "b01_runner_memory",
        Edit("inside.runner", "system.PR_SET_DUMPABLE, 0", "system.PR_SET_DUMPABLE, 1"),
    ),
    ("watch over memory", "a06_memory_many", _UNWATCHED),
    (
        "names of processes are parsed from their end", "b21_comm_spoof",
        Edit("inside.processes", 'text.rindex(b")")', 'text.index(b")")'),
    ),
    (
        "limit of core dumps", "b05_core_dump",
        Edit("inside.child", "RLIMIT_CORE: (0, 0)", "RLIMIT_CORE: (-1, -1)"),
    ),
    (
        "limit of address space", "b10_realtime",
        Edit("inside.child", "RLIMIT_AS: (memory, memory)", "RLIMIT_AS: (-1, -1)"),
    ),
    ("killing what a call leaves", "a10_daemon", _LINGERING),
    (
        "closing descriptors", "b03_forged_frames",
        Edit("inside.child", "os.closerange(first, first if spared is None else spared)", "return"),
    ),
)  # fmt: skip
_LANDLOCK = (
    (
        "which files are open", "a01_host_files",
        Edit("walls.landlock", '"read": [*allowed.paths', '"read": ["/", *allowed.paths'),
    ),
    (
        "which files can be written", "a17_write_host",
        Edit("walls.landlock", '"write": [folder.workdir', '"write": ["/var/tmp", folder.workdir'),
    ),
    (
        "watch over the disk", "a15_disk_fill",
        Edit("inside.meter", "return self._disk.is_full(", "return 0 > 1 and self._disk.is_full("),
    ),
    (
        "files without a name count", "b30_hidden_disk",
        Edit("inside.meter", "is_full([p.pid for p in members]", "is_full([]"),
    ),
    ("watch over memory", "a06_memory_many", _UNWATCHED),
    ("killing what a call leaves", "a10_daemon", _LINGERING),
)  # fmt: skip
MUTATIONS = (
    *(Mutation(name, "bwrap", attack, (edit,)) for name, attack, edit in _BWRAP),
    *(Mutation(name, "landlock", attack, (edit,)) for name, attack, edit in _LANDLOCK),
    Mutation(
        "sizes", "bwrap", "a15_disk_fill",
        (
            Edit("walls.bwrap_view", "str(disk_mb * MIB)", "str(4096 * MIB)"),
            Edit("inside.meter", "return sum(_num_bytes(", "return 0 * sum(_num_bytes("),
        ),
    ),
    Mutation(
        "another user than root", "bwrap", "a17_write_host",
        (Edit("walls.bwrap_find", "return (Way.INSIDE,) if", "return (Way.NONE,) if"),), ROOT,
    ),
    Mutation(
        "clean environment", "landlock", "a02_env_secrets",
        (_LEAKY, Edit("inside.runner", "    os.environ.clear()\n", "")),
    ),
    Mutation(
        "scope of signals", "landlock", "a12_signal_host",
        (Edit("inside.landlock", "_SCOPES = 0b11", "_SCOPES = 0b01"),), ORDINARY,
    ),
    Mutation(
        "inherits orphans", "landlock", "a10_daemon",
        (Edit("inside.runner", "PR_SET_CHILD_SUBREAPER, 1", "PR_SET_CHILD_SUBREAPER, 0"),),
        ORDINARY,
    ),
    without("filter: io_uring", "bwrap", "a19_kernel_surface", "io_uring_setup"),
    without("filter: userfaultfd", "bwrap", "a19_kernel_surface", "userfaultfd"),
    without("filter: descriptor tables", "bwrap", "a19_kernel_surface", "modify_ldt"),
    without("filter: namespaces", "bwrap", "a19_kernel_surface", "unshare", ROOT),
    without("filter: keys", "bwrap", "b14_keyring", "keyctl request_key"),
    without("filter: memfd", "bwrap", "a07_memory_files", "memfd_create"),
    without("filter: System V", "bwrap", "b07_ipc", "shmget shmctl"),
    without("filter: queues", "bwrap", "b07_ipc", "msgget msgctl"),
    without("filter: limits of others", "bwrap", "b02_runner_limits", "prlimit64"),
    without("filter: priorities", "bwrap", "b02_runner_limits", _WITHOUT_EFFECT),
    without("filter: families of sockets", "bwrap", "b09_socket_families", "socket"),
    without("filter: sockets", "landlock", "a03_sockets", "socket connect"),
    without("filter: sockets of a pair", "landlock", "a03_sockets", "socketpair connect sendto"),
    without("filter: watching", "landlock", "b11_watch", "inotify_init1 inotify_add_watch"),
    without("filter: attributes", "landlock", "a22_metadata", "setxattr"),
    without("filter: modes", "landlock", "a22_metadata", "chmod fchmodat fchmodat2", ORDINARY),
    without("filter: times", "landlock", "a22_metadata", "utimensat", ORDINARY),
    without("filter: limits of others", "landlock", "b02_runner_limits", "prlimit64", ORDINARY),
)  # fmt: skip


_LIFELINE = Edit(
    "inside.watch", "                raise HostGoneError\n", "                continue\n"
)
LIFELINES = {
    "bwrap": Mutation(
        "lifeline", "bwrap", "", (_LIFELINE, Edit("walls.bwrap", '("--die-with-parent", ', "("))
    ),
    "landlock": Mutation("lifeline", "landlock", "", (_LIFELINE,)),
}
"""What ends a sandbox in the middle of a call whose trainer was killed."""


def name_of(mutation: Mutation) -> str:
    """Unique."""
    return f"{mutation.backend}: {mutation.name}"
