"""Every sandbox keeps the same promises, whichever back end runs it."""

import asyncio
import math
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from sandbox_kit import BACKENDS, open_provider

from agentgym.errors import SandboxError, ToolError
from agentgym.tools.sandbox.base import (
    Call,
    Expression,
    Level,
    Opaque,
    Outcome,
    Sandbox,
    SandboxProvider,
    Script,
)
from agentgym.tools.sandbox.limits import Limits

pytestmark = pytest.mark.asyncio(loop_scope="module")

PARAMS = [
    pytest.param(backend, marks=pytest.mark.slow) if backend == "unsafe" else backend
    for backend in BACKENDS
]
ADD = "def add(a, b):\n    return a + b\n"


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=PARAMS)
async def provider(request: pytest.FixtureRequest) -> AsyncIterator[SandboxProvider]:
    async with open_provider(request.param) as provider:
        yield provider


@pytest_asyncio.fixture(loop_scope="module")
async def sandbox(provider: SandboxProvider) -> AsyncIterator[Sandbox]:
    sandbox = await provider.open()
    yield sandbox
    await sandbox.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(provider: SandboxProvider) -> AsyncIterator[Sandbox]:
    """For tests that leave nothing behind."""
    sandbox = await provider.open()
    yield sandbox
    await sandbox.close()


async def only(sandbox: Sandbox, program: str, case: Any, **limits: Any) -> Any:
    (result,) = await sandbox.run_tests(program, [case], limits=Limits(**limits))
    return result


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


# values

PLAIN = [
    None,
    True,
    0,
    -(2**70),
    2**53 + 1,
    1.5,
    -0.0,
    float("inf"),
    "",
    "na\u00efve \U0001f600 \x00 end",
    b"\x00\xff",
    1 - 2j,
    [],
    [1, [2, [3]]],
    (1, "a"),
    {},
    {"a": 1, 2: (3,), (4, 5): None, None: [], 1.5: "x"},
    {1, 2},
    frozenset({("a",)}),
]


async def test_plain_values_of_every_kind_come_back_as_they_were(shared: Sandbox):
    """Into the sandbox as arguments and out again as what the function returned."""
    cases = [Call(function="same", args=[value]) for value in PLAIN]
    results = await shared.run_tests("def same(x):\n    return x\n", cases)

    assert [result.outcome for result in results] == [Outcome.OK] * len(PLAIN)
    for result, value in zip(results, PLAIN, strict=True):
        assert result.has_value
        assert type(result.value) is type(value)
        assert result.value == value
        assert repr(result.value) == repr(value) or isinstance(value, set | frozenset)


async def test_nan_comes_back_as_nan(shared: Sandbox):
    result = await only(shared, "def f(): return float('nan')", Call(function="f"))

    assert isinstance(result.value, float)
    assert math.isnan(result.value)


async def test_a_value_that_is_no_data_is_opaque(shared: Sandbox):
    """An object that claims to equal everything is equal to nothing that is expected."""
    program = "class Yes:\n    def __eq__(self, other): return True\ndef f(): return Yes()\n"
    result = await only(shared, program, Call(function="f"))

    assert isinstance(result.value, Opaque)
    assert result.value.type.endswith("Yes")
    assert result.value != 1


async def test_a_value_too_large_to_send_is_the_codes_error(shared: Sandbox):
    result = await only(
        shared, "def f(): return 'x' * 100_000", Call(function="f"), value_bytes=1000
    )

    assert not result.ok
    assert result.blame == "code"
    assert not result.has_value


# tests


async def test_a_call_returns_what_the_function_returned(shared: Sandbox):
    cases = [Call(function="add", args=[i, i]) for i in range(5)]
    results = await shared.run_tests(ADD, cases)

    assert [result.value for result in results] == [0, 2, 4, 6, 8]


async def test_a_call_with_names_and_a_method_of_a_class(shared: Sandbox):
    program = "class Solution:\n    def twice(self, *, n):\n        return 2 * n\n"
    result = await only(shared, program, Call(function="Solution.twice", kwargs={"n": 4}))

    assert result.value == 8


async def test_an_expression_is_evaluated_beside_the_program(shared: Sandbox):
    case = Expression(source="isclose(add(0.1, 0.2), 0.3)", setup="from math import isclose")
    result = await only(shared, ADD, case)

    assert result.value is True


async def test_a_script_reads_stdin_and_writes_stdout(shared: Sandbox):
    program = "import sys\nif __name__ == '__main__':\n    print(sum(map(int, sys.stdin)))\n"
    results = await shared.run_tests(program, [Script(stdin="1\n2\n"), Script(stdin="")])

    assert [result.stdout for result in results] == ["3\n", "0\n"]
    assert all(result.ok and result.exit_code == 0 for result in results)


async def test_a_script_of_a_megabyte_of_input(shared: Sandbox):
    """Neither side waits for the other when pipes are full."""
    line = "x" * 1023 + "\n"
    program = "import sys\nfor line in sys.stdin: print(len(line))\n"
    result = await only(shared, program, Script(stdin=line * 1024))

    assert result.stdout == "1024\n" * 1024


async def test_exit_codes_of_a_script_are_told(shared: Sandbox):
    codes = ["0", "7", "'a message'"]
    results = [await only(shared, f"import sys\nsys.exit({code})\n", Script()) for code in codes]

    assert [result.exit_code for result in results] == [0, 7, 1]
    assert [result.outcome for result in results] == [Outcome.OK, Outcome.ERROR, Outcome.ERROR]
    assert "a message" in results[2].stderr


async def test_a_function_that_ends_the_process_has_returned_nothing(shared: Sandbox):
    """Leaving early with exit code 0 is no answer."""
    for way in ("os._exit(0)", "sys.exit(0)"):
        result = await only(shared, f"import os, sys\ndef f(): {way}\n", Call(function="f"))
        assert not result.ok, way
        assert not result.has_value
        assert result.blame == "code"


async def test_a_missing_function_is_the_codes_error(shared: Sandbox):
    result = await only(shared, ADD, Call(function="subtract"))

    assert (result.outcome, result.blame) == (Outcome.ERROR, "code")
    assert "subtract" in result.stderr + result.evidence


async def test_tests_are_isolated_from_each_other(shared: Sandbox):
    """State that one case leaves in the process is gone in the next."""
    program = "seen = []\ndef f(x):\n    seen.append(x)\n    return len(seen)\n"
    results = await shared.run_tests(program, [Call(function="f", args=[i]) for i in range(4)])

    assert [result.value for result in results] == [1, 1, 1, 1]


async def test_one_bad_case_leaves_the_others_alone(shared: Sandbox):
    """Whatever one case does to itself, every case has its own result, in order."""
    program = (
        "import os, signal\n"
        "def f(x):\n"
        "    if x == 1: os._exit(1)\n"
        "    if x == 2: os.kill(os.getpid(), signal.SIGSEGV)\n"
        "    if x == 3: raise ValueError(x)\n"
        "    return x\n"
    )
    results = await shared.run_tests(program, [Call(function="f", args=[i]) for i in range(5)])

    assert [r.outcome for r in results] == [
        Outcome.OK,
        Outcome.ERROR,
        Outcome.SIGNAL,
        Outcome.ERROR,
        Outcome.OK,
    ]
    assert results[2].signal == 11
    assert all(r.blame == "code" for r in results)


async def test_no_cases_have_no_results(shared: Sandbox):
    assert await shared.run_tests(ADD, []) == []


async def test_tests_do_not_see_the_names_of_cells(sandbox: Sandbox):
    """A grader's program is judged by itself."""
    await sandbox.run_cell("secret = 1")
    result = await only(sandbox, "def f(): return 'secret' in globals()", Call(function="f"))

    assert result.value is False


async def test_tests_leave_the_names_of_cells_alone(sandbox: Sandbox):
    await sandbox.run_cell("kept = 5")
    await only(sandbox, "kept = 6\ndef f(): return 1", Call(function="f"))

    assert (await sandbox.run_cell("kept")).value == 5


# limits


async def test_a_test_that_spins_is_stopped(shared: Sandbox):
    program = (
        "import signal\n"
        "for s in (signal.SIGINT, signal.SIGTERM, signal.SIGXCPU, signal.SIGALRM):\n"
        "    signal.signal(s, signal.SIG_IGN)\n"
        "def f():\n"
        "    while True:\n"
        "        try:\n"
        "            while True: pass\n"
        "        except BaseException: pass\n"
    )
    result = await only(shared, program, Call(function="f"), cpu_s=0.2)

    assert (result.outcome, result.blame) == (Outcome.CPU_LIMIT, "code")


async def test_a_test_that_allocates_too_much_is_out_of_memory(shared: Sandbox):
    program = "def f():\n    return len(bytearray(400 * 2**20))\n"
    result = await only(shared, program, Call(function="f"), memory_mb=256)

    assert (result.outcome, result.blame) == (Outcome.MEMORY_LIMIT, "code")


async def test_output_is_kept_by_its_head_and_its_tail(shared: Sandbox):
    program = "print('HEAD' + 'x' * 100_000 + 'TAIL')"
    result = await only(shared, program, Script(), output_bytes=1000)

    assert result.ok
    assert result.stdout_cut
    assert not result.stderr_cut
    assert result.stdout.startswith("HEAD")
    assert result.stdout.endswith("TAIL\n")
    assert len(result.stdout) < 1200


async def test_a_flood_of_output_is_stopped(shared: Sandbox):
    program = "import os\nwhile True: os.write(1, b'x' * 65536)\n"
    result = await only(shared, program, Script(), flood_mb=4)

    assert (result.outcome, result.blame) == (Outcome.OUTPUT_LIMIT, "code")


async def test_a_file_larger_than_allowed_is_refused(shared: Sandbox):
    program = "with open('big', 'wb') as f:\n    f.write(b'x' * (3 * 2**20))\n"
    result = await only(shared, program, Script(), file_mb=1)

    assert (result.outcome, result.blame) == (Outcome.DISK_LIMIT, "code")


async def test_processes_are_limited(shared: Sandbox):
    """Either no more can be started, or having too many ends it; none of them is left."""
    program = (
        "import os, time\n"
        "made = 0\n"
        "while made < 60:\n"
        "    try:\n"
        "        pid = os.fork()\n"
        "    except OSError:\n"
        "        break\n"
        "    if pid == 0:\n"
        "        time.sleep(20); os._exit(0)\n"
        "    made += 1\n"
        "print(made, flush=True)\n"
        "time.sleep(0.3)\n"
    )
    result = await only(shared, program, Script(), processes=10)
    after = await shared.run_shell("cat /proc/*/cmdline | tr '\\0' ' ' | grep -c main.py")

    assert result.blame == "code"
    assert result.outcome is Outcome.PROCESS_LIMIT or int(result.stdout) <= 12
    assert after.wall_s < 5


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
