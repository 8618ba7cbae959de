"""Takes one protection out of the sandbox and runs the attack it is there for.

A mutation replaces words of the source, in a process of its own, before anything is imported: the
code that protects carries no switches with which it could be turned off.
"""

import argparse
import asyncio
import importlib.util
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple

SANDBOX = "agentgym.tools.sandbox"
INSIDE = f"{SANDBOX}.inside"
ROOT, ANYONE, ORDINARY = "root", "anyone", "ordinary"


class Mutation(NamedTuple):
    """One protection, and how it is removed."""

    name: str
    backend: str
    attack: str
    module: str
    """Under `agentgym.tools.sandbox`."""
    old: str
    new: str
    needs: str = ANYONE
    """Who runs it: the attack may be held off by something else for others."""


def without(name: str, backend: str, attack: str, calls: str, needs: str = ANYONE) -> Mutation:
    """Calls are left out of the filter."""
    new = f"without: Collection[str] = {tuple(calls.split())!r},"
    return Mutation(name, backend, attack, "seccomp", "without: Collection[str] = (),", new, needs)


_WITHOUT_EFFECT = "setpriority sched_setscheduler sched_setaffinity ioprio_set"
MUTATIONS = (
    Mutation(
        "clean environment", "bwrap", "a02_env_secrets", "connection",
        "env=dict(launch.env)", "env={**os.environ, **launch.env}",
    ),
    Mutation(
        "another user than root", "bwrap", "a17_write_host", "bwrap_find",
        "    inside = (Way.INSIDE,)", "    return (Way.NONE,)\n    inside = (Way.INSIDE,)", ROOT,
    ),
    Mutation("own network", "bwrap", "a03_sockets", "bwrap", '"--unshare-net", ', ""),
    Mutation(
        "size of file systems", "bwrap", "a15_disk_fill", "bwrap_view",
        "str(disk_mb * MIB)", "str(4096 * MIB)",
    ),
    Mutation(
        "number of files", "bwrap", "b12_inodes", "inside.meter",
        "_num_inodes(folder) > MAX_INODES", "_num_inodes(folder) < 0",
    ),
    Mutation(
        "what is closed beneath what is open", "bwrap", "a01_host_files", "bwrap_view",
        "*_writable(disk_mb),", '*("--bind", "/dev/shm", "/dev/shm"),\n        *_writable(disk_mb)[:0],',
    ),
    Mutation(
        "runner cannot be traced", "bwrap", "b01_runner_memory", "inside.runner",
        "system.prctl(system.PR_SET_DUMPABLE, 0)", "system.prctl(system.PR_SET_DUMPABLE, 1)",
    ),
    Mutation(
        "watch over memory", "bwrap", "a06_memory_many", "inside.meter",
        'return "memory"', "return None",
    ),
    Mutation(
        "names of processes are parsed from their end", "bwrap", "b21_comm_spoof",
        "inside.processes", 'text.rindex(b")")', 'text.index(b")")',
    ),
    Mutation(
        "limit of core dumps", "bwrap", "b05_core_dump", "inside.child",
        "resource.RLIMIT_CORE: (0, 0)", "resource.RLIMIT_CORE: (-1, -1)",
    ),
    Mutation(
        "limit of address space", "bwrap", "b10_realtime", "inside.child",
        "resource.RLIMIT_AS: (memory, memory)", "resource.RLIMIT_AS: (-1, -1)",
    ),
    Mutation(
        "killing what a call leaves", "bwrap", "a10_daemon", "inside.runner",
        "self._family.kill_all(spared=None if self._kernel is None else self._kernel.pid)", "pass",
    ),
    Mutation(
        "closing descriptors", "bwrap", "b03_forged_frames", "inside.child",
        "os.closerange(first, first if spared is None else spared)", "return",
    ),
    without("filter: io_uring", "bwrap", "a19_kernel_surface", "io_uring_setup"),
    without("filter: userfaultfd", "bwrap", "a19_kernel_surface", "userfaultfd"),
    without("filter: perf_event_open", "bwrap", "a19_kernel_surface", "perf_event_open"),
    without("filter: namespaces", "bwrap", "a19_kernel_surface", "unshare", ROOT),
    without("filter: keys", "bwrap", "b14_keyring", "keyctl request_key"),
    without("filter: memfd", "bwrap", "a07_memory_files", "memfd_create"),
    without("filter: System V", "bwrap", "b07_ipc", "shmget shmctl"),
    without("filter: POSIX queues", "bwrap", "b07_ipc", "msgget msgctl"),
    without("filter: limits of others", "bwrap", "b02_runner_limits", "prlimit64"),
    without("filter: priorities", "bwrap", "b02_runner_limits", _WITHOUT_EFFECT),
    without("filter: families of sockets", "bwrap", "b09_socket_families", "socket"),
    without("filter: sockets", "landlock", "a03_sockets", "socket connect sendmsg sendto"),
    without("filter: watching", "landlock", "b11_watch", "inotify_init1 inotify_add_watch"),
    without("filter: attributes", "landlock", "a22_metadata", "setxattr"),
    without("filter: modes", "landlock", "a22_metadata", "chmod fchmodat fchmodat2", ORDINARY),
    without("filter: times", "landlock", "a22_metadata", "utimensat", ORDINARY),
    Mutation(
        "which files are open", "landlock", "a01_host_files", "landlock",
        '"read": [*allowed.paths', '"read": ["/", *allowed.paths',
    ),
    Mutation(
        "which files can be written", "landlock", "a17_write_host", "landlock",
        '"write": [folder.workdir', '"write": ["/var/tmp", folder.workdir',
    ),
    Mutation(
        "clean environment", "landlock", "a02_env_secrets", "inside.runner",
        "    os.environ.clear()\n", "",
    ),
    Mutation(
        "watch over the disk", "landlock", "a15_disk_fill", "inside.meter",
        "return self._disk.is_full(", "return bool(None) and self._disk.is_full(",
    ),
    Mutation(
        "files without a name count", "landlock", "b30_hidden_disk", "inside.meter",
        "is_full([p.pid for p in members]", "is_full([]",
    ),
    Mutation(
        "watch over memory", "landlock", "a06_memory_many", "inside.meter",
        'return "memory"', "return None",
    ),
    Mutation(
        "killing what a call leaves", "landlock", "a10_daemon", "inside.runner",
        "self._family.kill_all(spared=None if self._kernel is None else self._kernel.pid)", "pass",
    ),
)  # fmt: skip


class _Finder(MetaPathFinder):
    """Loads one module with other words in it."""

    def __init__(self, mutation: Mutation) -> None:
        self._mutation = mutation

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if name != f"{SANDBOX}.{self._mutation.module}":
            return None
        spec = PathFinder.find_spec(name, path)
        assert spec is not None
        assert spec.origin is not None
        spec.loader = _Loader(name, spec.origin, self._mutation)
        return spec


class _Loader(SourceFileLoader):
    def __init__(self, name: str, path: str, mutation: Mutation) -> None:
        super().__init__(name, path)
        self._mutation = mutation

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        source = mutated(Path(path).read_text(), self._mutation)
        return compile(source, path, "exec")


def mutated(source: str, mutation: Mutation) -> str:
    """The source without the protection.

    Raises:
        ValueError: the words are not there, or not once: the mutation is out of date.
    """
    if source.count(mutation.old) != 1:
        number = source.count(mutation.old)
        raise ValueError(f"{mutation.name}: {mutation.module} has {mutation.old!r} {number} times")
    return source.replace(mutation.old, mutation.new)


def weaken(mutation: Mutation) -> None:
    """In this process, before the sandbox is imported."""
    sys.meta_path.insert(0, _Finder(mutation))
    if not mutation.module.startswith("inside."):
        return
    from agentgym.tools.sandbox import program_code

    name = mutation.module.removeprefix("inside.")
    sources = program_code._sources()
    sources[name] = mutated(sources[name], mutation)
    program_code._sources = lambda: sources


def _try(mutation: Mutation, attack_name: str) -> dict[str, Any]:
    """How the attack went; in a process of its own."""
    weaken(mutation)
    from attack_kit import Arena, backend
    from attack_list import ATTACKS
    from decoy_kit import Decoys

    (attack,) = (attack for attack in ATTACKS if attack.name == attack_name)

    async def fight() -> dict[str, Any]:
        provider = backend(mutation.backend)
        with Decoys() as decoys:
            try:
                return (await Arena(provider, decoys).run(attack))._asdict()
            finally:
                await provider.aclose()

    return asyncio.run(fight())


def _fork(mutation: Mutation) -> dict[str, Any]:
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            answer = _try(mutation, mutation.attack)
        except BaseException as problem:
            answer = {"error": f"{type(problem).__name__}: {problem}"}
        os.write(writer, json.dumps(answer).encode()[:60_000])
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        data = file.read()
    os.waitpid(pid, 0)
    return json.loads(data)  # type: ignore[no-any-return]


def _import_what_is_not_mutated() -> None:
    for name in ("agentgym.errors", "agentgym.threads", "pydantic", "asyncio", "decoy_process"):
        importlib.import_module(name)


def main(arguments: Sequence[str]) -> None:
    """One line of JSON for each mutation."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--who", nargs="+", default=[ANYONE, ROOT])
    parser.add_argument("--only", default="")
    options = parser.parse_args(arguments)
    folder = tempfile.mkdtemp(prefix="agentgym-mutations-")
    os.chmod(folder, 0o1777)
    os.environ["TMPDIR"] = tempfile.tempdir = folder
    os.chdir(folder)
    _import_what_is_not_mutated()
    for mutation in MUTATIONS:
        if mutation.needs in options.who and options.only in mutation.name:
            print(json.dumps({"name": name_of(mutation), **_fork(mutation)}), flush=True)
    os.system(f"rm -rf {folder}")


def name_of(mutation: Mutation) -> str:
    return f"{mutation.backend}: {mutation.name}"


if __name__ == "__main__":
    main(sys.argv[1:])
