"""Programs are tried alike in every sandbox: what goes in, what comes out, what is too much."""

import math
from typing import Any

import pytest

from agentgym.tools.sandbox.base import Call, Expression, Opaque, Outcome, Sandbox, Script
from agentgym.tools.sandbox.limits import Limits

pytestmark = pytest.mark.asyncio(loop_scope="module")

ADD = "def add(a, b):\n    return a + b\n"


async def only(sandbox: Sandbox, program: str, case: Any, **limits: Any) -> Any:
    (result,) = await sandbox.run_tests(program, [case], limits=Limits(**limits))
    return result


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
