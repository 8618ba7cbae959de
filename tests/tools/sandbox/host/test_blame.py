"""Who is to blame for a call that says nothing of the code."""

import asyncio
import os
import resource
import signal
from collections.abc import AsyncIterator

import pytest
from processes_kit import alive, bwrap_launcher, bwrap_provider, descendants, name

from agentgym.errors import SandboxError
from agentgym.tools.sandbox.base import Call, Outcome, Script
from agentgym.tools.sandbox.host.provider import LocalProvider
from agentgym.tools.sandbox.host.sandbox import RunnerSandbox
from agentgym.tools.sandbox.limits import Limits

LAUNCHER, RUNNER = 0, 1
SLEEPS = "import subprocess\nsubprocess.run(['sleep', '{}'])\n"
SLOW_IF_ODD = f"""
def f(x):
    if x % 2:
        {SLEEPS.format(0.3).replace(chr(10), ";")}
    return x
"""


@pytest.fixture
async def provider() -> AsyncIterator[LocalProvider]:
    provider = bwrap_provider()
    yield provider
    await provider.aclose()


@pytest.fixture
async def sandbox(provider: LocalProvider) -> RunnerSandbox:
    return await provider.open()


def _processes(sandbox: RunnerSandbox) -> list[int]:
    """The launcher and what it has started."""
    assert sandbox._connection is not None
    launcher = sandbox._connection.process.pid
    return [launcher, *(process.pid for process in descendants(launcher))]


async def _until_restarted(sandbox: RunnerSandbox, first: object) -> None:
    while sandbox._connection in (None, first):  # noqa: ASYNC110
        await asyncio.sleep(0.01)


async def _until_asleep(sandbox: RunnerSandbox) -> None:
    """Until the code is under way, and has come to where it sleeps."""
    async with asyncio.timeout(30):
        while "sleep" not in map(name, _processes(sandbox)):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def _kill_asleep(sandbox: RunnerSandbox, which: int) -> None:
    await _until_asleep(sandbox)
    os.kill(_processes(sandbox)[which], signal.SIGKILL)


async def test_a_sandbox_killed_from_outside_costs_the_code_nothing(sandbox: RunnerSandbox) -> None:
    """The case is tried again, alone and in a fresh sandbox; those before it count."""
    cases = [Call(function="f", args=[n]) for n in range(3)]
    results, _ = await asyncio.gather(
        sandbox.run_tests(SLOW_IF_ODD, cases), _kill_asleep(sandbox, RUNNER)
    )

    assert [result.value for result in results] == [0, 1, 2]
    assert [result.attempts for result in results] == [1, 2, 1]
    assert all(result.blame == "code" for result in results)


async def test_a_launcher_killed_from_outside_costs_the_code_nothing(
    sandbox: RunnerSandbox,
) -> None:
    """Its sandbox may outlive it, but no longer than the call."""
    (before,), _ = await asyncio.gather(
        sandbox.run_tests(SLOW_IF_ODD, [Call(function="f", args=[7])]),
        _kill_asleep(sandbox, LAUNCHER),
    )
    first = _processes(sandbox)
    (after,) = await sandbox.run_tests(SLOW_IF_ODD, [Call(function="f", args=[8])])

    assert (before.value, after.value) == (7, 8)
    assert not alive(first)


async def test_what_the_cells_knew_is_known_again(sandbox: RunnerSandbox) -> None:
    """A trajectory goes on where its sandbox died, files included."""
    await sandbox.run_cell("x = 41")
    await sandbox.write_file("note.txt", b"kept")
    await sandbox.run_shell("echo more >> note.txt")
    result, _ = await asyncio.gather(
        sandbox.run_cell(f"{SLEEPS.format(0.3)}x + 1"), _kill_asleep(sandbox, RUNNER)
    )

    assert result.value == 42
    assert result.attempts == 2
    assert not result.state_lost
    assert await sandbox.read_file("note.txt") == b"keptmore\n"


async def test_a_sandbox_that_dies_twice_was_killed_by_the_code(sandbox: RunnerSandbox) -> None:
    """A model must not be able to choose infrastructure as its fate."""
    call = asyncio.create_task(sandbox.run_cell(SLEEPS.format(5)))
    first = sandbox._connection
    await _kill_asleep(sandbox, RUNNER)
    await _until_restarted(sandbox, first)
    await _kill_asleep(sandbox, RUNNER)
    result = await call

    assert result.outcome is Outcome.LOST
    assert result.blame == "code"
    assert result.state_lost
    assert "died twice" in result.evidence
    assert (await sandbox.run_cell("1 + 1")).value == 2


async def test_what_dies_while_it_is_done_again_was_killed_by_the_code(
    sandbox: RunnerSandbox,
) -> None:
    """Else a cell that dies by the clock, and only then, could choose infrastructure."""
    await sandbox.run_cell(SLEEPS.format(0.5))
    call = asyncio.create_task(sandbox.run_cell(SLEEPS.format(5)))
    first = sandbox._connection
    await _kill_asleep(sandbox, RUNNER)
    await _until_restarted(sandbox, first)
    await _kill_asleep(sandbox, RUNNER)
    result = await call

    assert result.outcome is Outcome.LOST
    assert result.blame == "code"
    assert (await sandbox.run_cell("1 + 1")).value == 2


async def test_a_call_cancelled_while_the_past_is_done_again_leaves_no_answer_behind(
    sandbox: RunnerSandbox,
) -> None:
    """The next call must not read what belongs to the past."""
    await sandbox.run_cell(f"x = 5\n{SLEEPS.format(0.5)}'past'")
    first = sandbox._connection
    os.kill(_processes(sandbox)[RUNNER], signal.SIGKILL)
    call = asyncio.create_task(sandbox.run_cell("x"))
    await _until_restarted(sandbox, first)
    await _until_asleep(sandbox)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call

    assert (await sandbox.run_cell("x + 1")).value == 6


FORGERY = r"""
import os
for fd in range(200):
    try:
        os.write(fd, b"\0\0\0\x02{}")
    except OSError:
        pass
"""
SELF_DESTRUCTION = [
    "import os, signal\nos.kill(1, signal.SIGKILL)",
    "import os, signal\nos.kill(1, signal.SIGINT)",
    "import os, signal\nos.kill(os.getppid(), signal.SIGSTOP)",
    "import os, signal\nos.kill(-1, signal.SIGKILL)",
    "import resource\nresource.prlimit(1, resource.RLIMIT_NOFILE, (3, 3))",
    "import resource\nresource.prlimit(1, resource.RLIMIT_AS, (1, 1))",
    "import os\nos._exit(137)",
    "import os\nos.closerange(0, 200)",
    FORGERY,
    "open('/tmp/x', 'wb').write(b'x' * 10**8)",
    "import os\nwhile True: os.fork()",
    "x = [0]\nwhile True: x += x",
    "import ctypes\nctypes.string_at(0)",
    "import os\nopen('/proc/1/mem', 'r+b')",
    "import os\n[os.close(fd) for fd in map(int, os.listdir('/proc/self/fd'))]",
]


@pytest.mark.parametrize(
    "code",
    [
        *SELF_DESTRUCTION[:7],
        *(pytest.param(c, marks=pytest.mark.slow) for c in SELF_DESTRUCTION[7:]),
    ],
    ids=range(len(SELF_DESTRUCTION)),
)
async def test_self_destruction_is_the_codes(sandbox: RunnerSandbox, code: str) -> None:
    """And the sandbox goes on, at the first attempt."""
    limits = Limits(cpu_s=2, wall_s=2)
    broken, fine = await sandbox.run_tests(code, [Script()], limits=limits) + (
        await sandbox.run_tests("print('still fine')", [Script()])
    )
    cell = await sandbox.run_cell(code, limits=limits)
    after = await sandbox.run_cell("1 + 1")

    assert broken.blame == cell.blame == "code"
    assert broken.attempts == cell.attempts == 1
    assert fine.stdout == "still fine\n"
    assert after.value == 2


async def test_a_launcher_that_vanishes_is_infrastructure() -> None:
    """Several tries, then an error that names it; never a result."""
    launcher = bwrap_launcher()
    provider = LocalProvider(launcher, warm=0)
    sandbox = await provider.open()
    launcher.program = "/nowhere/bwrap"
    os.kill(_processes(sandbox)[0], signal.SIGKILL)
    while sandbox._connection is not None and sandbox._connection.is_alive:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    try:
        with pytest.raises(SandboxError, match="/nowhere/bwrap"):
            await sandbox.run_cell("1")
        with pytest.raises(SandboxError, match="/nowhere/bwrap"):
            await provider.open()
    finally:
        await provider.aclose()


async def test_a_host_without_descriptors_is_infrastructure(provider: LocalProvider) -> None:
    """The trainer's own limit says nothing of the code."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        with pytest.raises(SandboxError, match=r"Too many open files|descriptors"):
            await provider.open()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    assert (await (await provider.open()).run_cell("1")).value == 1


async def test_a_cancelled_call_leaves_a_sandbox_that_works(sandbox: RunnerSandbox) -> None:
    """What it was doing is undone, and what came before is there."""
    await sandbox.run_cell("x = 5")
    call = asyncio.create_task(sandbox.run_cell(f"x = 6\n{SLEEPS.format(30)}"))
    await _until_asleep(sandbox)
    processes = _processes(sandbox)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call

    assert not alive(processes)
    assert (await sandbox.run_cell("x")).value == 5


async def test_a_closed_sandbox_says_so(sandbox: RunnerSandbox) -> None:
    """Closing twice is fine; calling is not."""
    await sandbox.close()
    await sandbox.close()

    with pytest.raises(SandboxError, match="closed"):
        await sandbox.run_cell("1")


@pytest.mark.slow
async def test_a_busy_machine_is_no_timeout(provider: LocalProvider) -> None:
    """Programs at once for which the cores take twice as long as the clock lets each of them."""
    code = "import time\nwhile time.process_time() < 0.4: pass\nprint('done')"
    limits = Limits(cpu_s=2, wall_s=1.0)
    num = 5 * (os.cpu_count() or 1)

    async def run() -> list[str]:
        sandbox = await provider.open()
        results = await sandbox.run_tests(code, [Script()], limits=limits)
        await sandbox.close()
        return [result.stdout for result in results]

    outputs = await asyncio.gather(*(run() for _ in range(num)))

    assert outputs == [["done\n"]] * num
