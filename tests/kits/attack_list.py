"""Every attack: what stops it, what the host does beside it, and what shows that it can succeed."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

from agentgym.errors import ToolError
from agentgym.tools.sandbox.base import ExecResult, Outcome, SandboxSpec, Script
from agentgym.tools.sandbox.limits import Limits

QUICK = Limits(cpu_s=2.0, tree_cpu_s=3.0, wall_s=4.0)
BRIEF = Limits(cpu_s=0.3, tree_cpu_s=0.6, wall_s=0.8)
SMALL = replace(QUICK, memory_mb=256, tree_memory_mb=384)
MEMORY = frozenset({Outcome.MEMORY_LIMIT})
TIME = frozenset({Outcome.CPU_LIMIT, Outcome.WALL_TIMEOUT})
DISK = frozenset({Outcome.DISK_LIMIT, Outcome.MEMORY_LIMIT})
NONE: frozenset[Outcome] = frozenset()


async def once(duel: Any) -> ExecResult:
    return await duel.attack()


@dataclass(frozen=True, kw_only=True)
class Attack:
    """A file of `tests/attacks`."""

    name: str
    file: str = ""
    """Without its ending; the name if left out."""
    ends: frozenset[Outcome] = NONE
    """How it may end before it has reported."""
    limits: Limits = QUICK
    drive: Callable[[Any], Awaitable[ExecResult]] = once
    watched: bool = False
    """Whether the host looks at its processes all the time."""
    bare: str = ""
    """Why even a plain subprocess of root withstands it, and what shows that it bites."""
    core: bool = False
    """Whether it belongs to the few that always run."""

    @property
    def shares(self) -> bool:
        """Whether it runs in a sandbox that others are run in after it."""
        return self.drive is once and not self.ends and not self.watched


async def twice(duel: Any) -> ExecResult:
    """Leave something in one sandbox, look for it in the next and in the same one once reset."""
    first = await duel.attack()
    other = await duel.arena.provider.open(SandboxSpec(limits=QUICK))
    try:
        second = await duel.attack(other)
    finally:
        await other.close()
    duel.check('"succeeded": false' in second.stdout, f"another one found {second.stdout}")
    await duel.sandbox.reset()
    third = await duel.attack()
    duel.check('"succeeded": false' in third.stdout, f"left over a reset: {third.stdout}")
    return first


async def supervisor(duel: Any) -> ExecResult:
    """Names of the cells outlive an attack on the runner; one on their interpreter is told."""
    if duel.sandbox.backend == "bare":
        return await duel.attack(cells=2**22)
    cell = await duel.sandbox.run_cell("import os\nkept = 41\nos.getpid()")
    result = await duel.attack(cells=cell.value)
    after = await duel.sandbox.run_cell("kept + 1")
    kept = after.ok and after.value == 42
    told = after.state_lost and after.blame == "code" and "b24" in duel.known["attack"]
    duel.check(kept or told, f"cells: {after.outcome} {after.evidence}")
    last = await duel.sandbox.run_cell("6 * 7")
    duel.check(last.value == 42, f"the next cell: {last.outcome} {last.evidence}")
    return result


NAMES = (
    *("link", "link-up", "link-proc", "link-dir/id_rsa", "link-root/etc/passwd", "hard", "hard2"),
    *("../../../../../../etc/passwd", "/etc/passwd", "/proc/self/environ"),
)


async def links(duel: Any) -> ExecResult:
    """The host reads and writes by the names that the attack left."""
    result = await duel.attack()
    for name in NAMES:
        try:
            data = await asyncio.wait_for(duel.sandbox.read_file(name), 5)
        except (ToolError, OSError):
            continue
        bad = duel.arena.decoys.secret.encode() in data or _of_host(name, data)
        duel.check(not bad, f"{name} was read")
    for name in ("link-dir/left", "../left", "link"):
        try:
            await asyncio.wait_for(duel.sandbox.write_file(name, b"left"), 5)
        except (ToolError, OSError):
            continue
    return result


def _of_host(name: str, data: bytes) -> bool:
    """A password file of the sandbox's own is none of the host's."""
    try:
        with open("/etc/passwd", "rb") as file:
            return name.endswith("passwd") and data == file.read()
    except OSError:
        return False


async def meet(duel: Any) -> ExecResult:
    """The same in two sandboxes at once."""
    other = await duel.arena.provider.open(SandboxSpec(limits=QUICK))
    mark = duel.known["mark"]
    try:
        one, two = await asyncio.gather(
            duel.attack(meet_s=0.8, other=mark + "-"),
            duel.attack(other, meet_s=0.8, other=mark, mark=mark + "-"),
        )
    finally:
        await other.close()
    duel.check('"succeeded": false' in two.stdout, f"the other one says {two.stdout}")
    return one


async def forged(duel: Any) -> ExecResult:
    """What comes next is what its own program said."""
    result = await duel.attack()
    cases = [Script(stdin="1"), Script(stdin="2")]
    one, two = await duel.sandbox.run_tests("print(input())", cases)
    duel.check([one.stdout, two.stdout] == ["1\n", "2\n"], f"{one.stdout!r}, {two.stdout!r}")
    return result


async def deep(duel: Any) -> ExecResult:
    """It can be cleared away, from the folder of a case and from the one that stays."""
    await duel.attack(home=False)
    result = await duel.attack(home=True)
    await duel.sandbox.reset()
    listing = "import os\nprint(os.listdir('.') + os.listdir(os.environ['HOME']))"
    [left] = await duel.sandbox.run_tests(listing, [Script()])
    duel.check(left.stdout.strip() == "[]", f"left over a reset: {left.stdout} {left.stderr}")
    return result


async def every_way(duel: Any) -> ExecResult:
    """Each in turn; the first that got through, or the last."""
    for way in ("deleted", "nameless", "mapped", "deep", "unreadable"):
        result = await duel.attack(way=way)
        stopped = result.outcome in DISK or '"succeeded": false' in result.stdout
        duel.check(stopped, f"{way}: {result.outcome} {result.evidence} {result.stdout[-300:]}")
        await duel.sandbox.reset()
    return result


async def in_cell(duel: Any) -> ExecResult:
    """In the interpreter that goes on."""
    known = json.dumps(duel.known | {"nameless": True})  # it stays, and is none of the leftovers
    given = f"import io, sys\nsys.stdin = io.StringIO({known!r})\n"
    return await duel.sandbox.run_cell(given + duel.source)


async def in_shell(duel: Any) -> ExecResult:
    """By a Python that was started anew."""
    await duel.sandbox.write_file("attack.py", duel.source.encode())
    return await duel.sandbox.run_shell("python3 attack.py", stdin=json.dumps(duel.known) + "\n")


_ELSEWHERE = (
    *("a01_host_files", "a03_sockets", "a12_signal_host", "a17_write_host", "a19_kernel_surface"),
    *("a20_inherited_fds", "b01_runner_memory"),
)
ELSEWHERE = tuple(
    Attack(name=f"{file}_{way}", file=file, drive=drive, bare=f"see {file}")
    for way, drive in (("cell", in_cell), ("shell", in_shell))
    for file in _ELSEWHERE
    if (way, file) != ("shell", "b01_runner_memory")  # there its parent is the shell
)

ATTACKS = (
    Attack(name="a01_host_files", core=True),
    Attack(name="a02_env_secrets", core=True),
    Attack(name="a03_sockets", core=True),
    Attack(name="a04_fork_bomb", watched=True),
    Attack(name="a05_memory_one", ends=MEMORY, limits=SMALL, watched=True),
    Attack(name="a06_memory_many", ends=MEMORY, limits=SMALL, watched=True),
    Attack(name="a07_memory_files", ends=DISK),
    Attack(name="a08_cpu_spin", ends=TIME, limits=BRIEF, bare="killed by the timeout"),
    Attack(name="a09_held_pipe", ends=TIME, limits=BRIEF),
    Attack(name="a10_daemon"),
    Attack(name="a11_zombies"),
    Attack(name="a12_signal_host", core=True),
    Attack(name="a13_ptrace_host", core=True),
    Attack(name="a14_host_processes", core=True),
    Attack(name="a15_disk_fill", ends=DISK),
    Attack(name="a16_output_flood", ends=TIME | {Outcome.OUTPUT_LIMIT}, watched=True),
    Attack(name="a17_write_host", core=True),
    Attack(name="a18_state_left", drive=twice),
    Attack(name="a19_kernel_surface", core=True),
    Attack(name="a20_inherited_fds", core=True),
    Attack(name="a21_kill_supervisor", ends=frozenset({Outcome.SIGNAL}), drive=supervisor),
    Attack(name="a22_metadata", core=True),
    Attack(name="b01_runner_memory", core=True),
    Attack(name="b02_runner_limits", core=True),
    Attack(name="b03_forged_frames", drive=forged, bare="no channel to forge"),
    Attack(name="b04_links", drive=links),
    Attack(name="b05_core_dump"),
    Attack(name="b06_terminal"),
    Attack(name="b07_ipc", core=True),
    Attack(name="b08_meet", drive=meet),
    Attack(name="b09_socket_families"),
    Attack(name="b10_realtime"),
    Attack(name="b11_watch"),
    Attack(name="b12_inodes", ends=TIME | DISK),
    Attack(name="b13_deep_tree", ends=TIME | {Outcome.DISK_LIMIT}, drive=deep),
    Attack(name="b14_keyring"),
    Attack(name="b15_sigio"),
    Attack(name="b16_moving_target", ends=TIME),
    Attack(name="b17_privileged"),
    Attack(name="b18_stdlib"),
    Attack(name="b19_devices"),
    Attack(name="b20_other_abi", ends=frozenset({Outcome.SIGNAL})),
    Attack(name="b21_comm_spoof", ends=MEMORY, limits=SMALL),
    Attack(name="b22_hidden_memory", ends=MEMORY | TIME),
    Attack(name="b23_stopped", ends=TIME, limits=BRIEF),
    Attack(name="b24_interpreter", drive=supervisor, bare="no interpreter of cells"),
    Attack(name="b25_thread_bomb", watched=True),
    Attack(name="b26_new_privileges"),
    Attack(name="b27_own_code"),
    Attack(name="b28_big_words"),
    Attack(name="b29_self_memory", bare="the kernel copies such pages"),
    Attack(name="b30_hidden_disk", ends=DISK, drive=every_way),
    *ELSEWHERE,
)
