"""Every sandbox keeps the same promises, whichever back end runs it."""

import asyncio
from typing import Any

import pytest
from sandbox_kit import open_provider

from agentgym.errors import SandboxError, ToolError
from agentgym.tools.sandbox.base import (
    Call,
    Level,
    Outcome,
    Sandbox,
    SandboxProvider,
)
from agentgym.tools.sandbox.limits import Limits

pytestmark = pytest.mark.asyncio(loop_scope="module")

ADD = "def add(a, b):\n    return a + b\n"


# what it is


async def test_a_sandbox_says_what_it_is(provider: SandboxProvider, shared: Sandbox):
    """The run's record names back end and level of what really ran."""
    assert isinstance(shared, Sandbox)
    assert shared.backend == provider.backend
    assert shared.level == provider.level
    assert isinstance(shared.level, Level)
    assert shared.id


async def test_the_probe_says_it_is_usable(provider: SandboxProvider):
    """A back end that starts here claims so, with what was seen."""
    report = await provider.probe()

    assert report.usable
    assert report.backend == provider.backend
    assert all(probe.reason for probe in report.probes)


async def test_two_sandboxes_have_nothing_in_common(provider: SandboxProvider):
    """Names and files of one trajectory are none of another's."""
    first, second = await asyncio.gather(provider.open(), provider.open())
    try:
        await first.run_cell("mine = 1")
        await first.write_file("mine.txt", b"1")
        names = await second.run_cell("'mine' in globals()")
        files = await second.run_cell("import os; os.path.exists('mine.txt')")
    finally:
        await asyncio.gather(first.close(), second.close())

    assert first.id != second.id
    assert names.value is False
    assert files.value is False


# cells


async def test_cells_keep_their_names(sandbox: Sandbox):
    """What one cell defines, the next ones use."""
    await sandbox.run_cell("import math\nx = 20")
    result = await sandbox.run_cell("x += 1\nmath.floor(2 * x)")

    assert result.outcome is Outcome.OK
    assert result.value == 42
    assert result.shown == "42"
    assert not result.state_lost


async def test_a_cell_without_an_expression_has_no_value(shared: Sandbox):
    """No value is told apart from the value None."""
    nothing = await shared.run_cell("y = 3")
    none = await shared.run_cell("print('hi')")

    assert (nothing.ok, nothing.has_value, nothing.shown) == (True, False, "")
    assert (none.has_value, none.value, none.shown) == (True, None, "")
    assert none.stdout == "hi\n"


async def test_an_exception_in_a_cell_keeps_the_names(sandbox: Sandbox):
    """The model reads its traceback and goes on where it was."""
    result = await sandbox.run_cell("z = 1\nprint('before')\n1 / 0")
    after = await sandbox.run_cell("z")

    assert (result.outcome, result.blame) == (Outcome.ERROR, "code")
    assert result.stdout == "before\n"
    assert "ZeroDivisionError" in result.stderr
    assert "agentgym" not in result.stderr
    assert not result.state_lost
    assert after.value == 1


async def test_a_syntax_error_is_the_codes_error(shared: Sandbox):
    result = await shared.run_cell("def f(:\n    pass")

    assert (result.outcome, result.blame) == (Outcome.ERROR, "code")
    assert "SyntaxError" in result.stderr


async def test_a_cell_that_ends_its_interpreter_loses_the_names(sandbox: Sandbox):
    """The next cell gets a new interpreter, and the caller is told."""
    await sandbox.run_cell("w = 1")
    result = await sandbox.run_cell("import os; os._exit(3)")
    after = await sandbox.run_cell("'w' in globals()")

    assert (result.outcome, result.exit_code, result.blame) == (Outcome.ERROR, 3, "code")
    assert result.state_lost
    assert after.value is False


async def test_a_cell_that_spins_is_stopped(sandbox: Sandbox):
    """By processor time, whatever it does with signals of its own."""
    limits = Limits(cpu_s=0.2)
    result = await sandbox.run_cell("while True: pass", limits=limits)
    after = await sandbox.run_cell("1 + 1")

    assert (result.outcome, result.blame) == (Outcome.CPU_LIMIT, "code")
    assert result.cpu_s >= 0.2
    assert result.wall_s < 20
    assert after.value == 2


async def test_a_cell_that_sleeps_is_stopped_by_the_clock(sandbox: Sandbox):
    limits = Limits(cpu_s=5, wall_s=0.3)
    result = await sandbox.run_cell("import time; time.sleep(60)", limits=limits)

    assert (result.outcome, result.blame) == (Outcome.WALL_TIMEOUT, "code")
    assert 0.25 < result.wall_s < 20


async def test_what_a_cell_leaves_running_is_ended(sandbox: Sandbox):
    """A background process cannot outlive its call."""
    await sandbox.run_cell(
        "import subprocess\np = subprocess.Popen(['sh', '-c', 'sleep 0.3; echo late > late.txt'])"
    )
    await asyncio.sleep(0.5)
    result = await sandbox.run_cell("import os; os.path.exists('late.txt')")

    assert result.value is False


# shell


async def test_a_shell_command_runs_in_the_working_directory(sandbox: Sandbox):
    await sandbox.write_file("numbers.txt", b"3\n1\n2\n")
    result = await sandbox.run_shell("sort numbers.txt | head -1; echo oops >&2; exit 4")

    assert (result.stdout, result.stderr) == ("1\n", "oops\n")
    assert (result.outcome, result.exit_code) == (Outcome.ERROR, 4)
    assert result.blame == "code"


async def test_a_shell_command_reads_stdin(shared: Sandbox):
    result = await shared.run_shell("tr a-z A-Z", stdin="hello")

    assert (result.ok, result.stdout, result.exit_code) == (True, "HELLO", 0)


async def test_a_shell_command_that_hangs_is_stopped_with_its_children(shared: Sandbox):
    result = await shared.run_shell("sleep 60 & wait", limits=Limits(wall_s=0.3))

    assert (result.outcome, result.blame) == (Outcome.WALL_TIMEOUT, "code")


async def test_stdin_is_at_its_end(shared: Sandbox):
    """Code that asks for input gets an end of file, not a hang."""
    cell = await shared.run_cell("import sys; sys.stdin.read()")
    shell = await shared.run_shell("cat")

    assert cell.value == ""
    assert (shell.stdout, shell.exit_code) == ("", 0)


async def test_the_environment_is_not_the_hosts(shared: Sandbox, monkeypatch: Any):
    """Keys that this process has are not there."""
    result = await shared.run_shell("env")

    assert result.ok
    assert not {"PWD_OF_TEST", "PYTEST_CURRENT_TEST", "E2B_API_KEY"} & {
        line.split("=")[0] for line in result.stdout.splitlines()
    }


# files


async def test_files_go_in_and_out(sandbox: Sandbox):
    data = bytes(range(256)) * 100
    await sandbox.write_file("a/b/data.bin", data)
    seen = await sandbox.run_cell("len(open('a/b/data.bin', 'rb').read())")
    await sandbox.run_cell("open('out.txt', 'w').write('from inside')")

    assert seen.value == len(data)
    assert await sandbox.read_file("a/b/data.bin") == data
    assert await sandbox.read_file("out.txt") == b"from inside"


@pytest.mark.parametrize("path", ["../up.txt", "/etc/passwd", "a/../../up.txt", "", "."])
async def test_a_path_outside_the_working_directory_is_refused(shared: Sandbox, path: str):
    with pytest.raises(ToolError):
        await shared.write_file(path, b"x")
    with pytest.raises(ToolError):
        await shared.read_file(path)


async def test_only_regular_files_of_bounded_size_are_read(sandbox: Sandbox):
    """No link out, no pipe that never ends, no folder, nothing too large."""
    await sandbox.run_shell(
        "ln -s /etc/passwd link; mkfifo pipe; mkdir folder; truncate -s 3000000 large"
    )
    for path in ("link", "pipe", "folder", "missing"):
        with pytest.raises(ToolError):
            await sandbox.read_file(path)
    with pytest.raises(ToolError):
        await sandbox.read_file("large", max_bytes=1_000_000)


# the end


async def test_reset_forgets_a_call_that_was_still_running(sandbox: Sandbox):
    call = asyncio.create_task(sandbox.run_cell("import time\nx = 1\ntime.sleep(0.3)"))
    await asyncio.sleep(0.1)
    await asyncio.gather(call, sandbox.reset())

    assert (await sandbox.run_cell("'x' in globals()")).value is False


async def test_reset_forgets_names_and_files(sandbox: Sandbox):
    await sandbox.run_cell("v = 1; open('left.txt', 'w').close()")
    await sandbox.reset()
    result = await sandbox.run_cell("import os; ('v' in globals(), os.listdir('.'))")

    assert result.value == (False, [])


async def test_close_twice_is_fine_and_a_closed_sandbox_says_so(provider: SandboxProvider):
    sandbox = await provider.open()
    await sandbox.run_cell("1")
    await sandbox.close()
    await sandbox.close()

    with pytest.raises(SandboxError):
        await sandbox.run_cell("1")
    with pytest.raises(SandboxError):
        await sandbox.run_tests(ADD, [Call(function="add", args=[1, 1])])


async def test_a_closed_provider_opens_no_more(provider: SandboxProvider):
    """Nor does it leave open what was being opened."""
    name = "unsafe" if provider.level == Level.NONE else provider.backend
    async with open_provider(name) as other:
        opening = asyncio.create_task(other.open())
        await asyncio.sleep(0)
        await other.aclose()

        with pytest.raises(SandboxError, match="closed"):
            await opening
        with pytest.raises(SandboxError, match="closed"):
            await other.open()


async def test_a_cancelled_call_leaves_a_sandbox_that_can_be_closed(provider: SandboxProvider):
    """A trajectory that is cancelled in the middle of a call still ends its sandbox."""
    sandbox = await provider.open()
    running = asyncio.create_task(sandbox.run_cell("import time; time.sleep(30)"))
    await asyncio.sleep(0.2)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await sandbox.close()


async def test_calls_at_once_run_one_after_another(sandbox: Sandbox):
    """Two tools of one turn share the sandbox; their results are not mixed up."""
    await sandbox.run_cell("order = []")
    results = await asyncio.gather(
        *(sandbox.run_cell(f"order.append({i}); print({i}); {i}") for i in range(6))
    )
    order = await sandbox.run_cell("order")

    assert [result.value for result in results] == list(range(6))
    assert [result.stdout for result in results] == [f"{i}\n" for i in range(6)]
    assert sorted(order.value) == list(range(6))


async def test_a_new_sandbox_is_as_good_as_the_first_after_a_bad_one(provider: SandboxProvider):
    """Code that fights its sandbox spoils nobody else's."""
    bad = await provider.open()
    await bad.run_shell("kill -9 $PPID", limits=Limits(wall_s=3))
    await bad.close()
    good = await provider.open()
    result = await good.run_cell("'fine'")
    await good.close()

    assert result.value == "fine"
