"""Programs end as the interpreter ends them, and what they used counts however they end."""

import pytest

from agentgym.tools.sandbox.base import Outcome, Sandbox, Script
from agentgym.tools.sandbox.limits import Limits

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def out_of(sandbox: Sandbox, program: str, stdin: str = "") -> str:
    (result,) = await sandbox.run_tests(program, [Script(stdin=stdin)])
    assert (result.outcome, result.exit_code, result.stderr) == (Outcome.OK, 0, "")
    return result.stdout


@pytest.mark.parametrize(
    ("program", "printed"),
    [
        ("import io, sys\nprint('a')\nsys.stdout = io.StringIO()\nprint('b')", "a\n"),
        ("out = open(1, 'w', closefd=False)\nprint('a', file=out)", "a\n"),
        ("out = open('/dev/stdout', 'w')\nout.write('a')", "a"),
        ("class A:\n    def __del__(self): print('bye')\na = A()\nprint('hi')", "hi\nbye\n"),
        ("import sys\nprint('a')\nsys.stdout.close()", "a\n"),
        ("import sys\nprint('a')\nsys.stdout = None", "a\n"),
        ("globals()[1] = 2\nprint('a')", "a\n"),
        ("\ufeffprint('a')", "a\n"),
    ],
)
async def test_nothing_that_was_written_is_lost_at_the_end(
    shared: Sandbox, program: str, printed: str
) -> None:
    assert await out_of(shared, program) == printed


async def test_threads_that_nobody_waits_for_do_not_see_the_end(shared: Sandbox) -> None:
    program = (
        "import threading, time\n"
        "def work():\n    while True: time.sleep(0.0001); list(names)\n"
        "names = {}\nthreading.Thread(target=work, daemon=True).start()\nprint('a')"
    )

    assert await out_of(shared, program) == "a\n"


async def test_exit_codes_too_large_are_failures(shared: Sandbox) -> None:
    (result,) = await shared.run_tests("import sys; sys.exit(2 ** 70)", [Script()])

    assert (result.outcome, result.exit_code) == (Outcome.ERROR, 255)


async def test_halves_of_characters_are_no_reason_to_break(shared: Sandbox) -> None:
    """Some datasets hold them."""
    assert await out_of(shared, "print(ascii(input()))", "a\ud83d") == "'a?'\n"
    said = await shared.run_shell("cat; echo '\ud83d'", stdin="\ud83d\n")

    assert (said.stdout, said.attempts) == ("?\n?\n", 1)


@pytest.mark.parametrize("value_bytes", [1000, 1_048_576])
async def test_large_values_of_cells_come_at_once(sandbox: Sandbox, value_bytes: int) -> None:
    """Also where it takes more to show them than may be returned."""
    limits = Limits(value_bytes=value_bytes)
    count = max(1500, (value_bytes - 4000) // 12)
    result = await sandbox.run_cell(f"'\U0001f600' * {count}", limits=limits)

    assert (result.outcome, result.has_value, result.state_lost) == (Outcome.OK, True, False)


async def test_what_the_interpreter_used_before_is_not_the_last_cells(sandbox: Sandbox) -> None:
    await sandbox.run_cell("for i in range(3 * 10**6): pass")
    result = await sandbox.run_cell("import os; os.kill(os.getpid(), 9)", limits=Limits(cpu_s=0.1))

    assert (result.outcome, result.signal) == (Outcome.SIGNAL, 9)
    assert result.cpu_s < 0.05


async def test_time_to_stop_is_no_time_for_more(sandbox: Sandbox) -> None:
    code = """
import os, time
try:
    for i in range(10**9): len(str())
except KeyboardInterrupt: pass
for i in range(6):
    if os.fork() == 0:
        kept = bytearray(b'x') * (60 * 2**20)
        time.sleep(30)
time.sleep(0.9)
print('late', flush=True)
"""
    limits = Limits(cpu_s=0.2, wall_s=20, tree_memory_mb=100)
    result = await sandbox.run_cell(code, limits=limits)

    assert result.state_lost
    assert result.outcome is Outcome.CPU_LIMIT
    assert result.max_rss_mb > 100
    assert result.stdout == ""


BACKENDS_OF_THIS_MACHINE = ("bwrap", "landlock")
"""The meter is the same everywhere; what it sees of processes depends on these walls alone."""
_UNSEEN = {
    "nobody is told of their end": """
import os, signal, time
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for n in range(200):
    if os.fork() == 0:
        s = time.process_time()
        while time.process_time() - s < 0.2: pass
        os._exit(0)
    time.sleep(0.2)
""",
    "nobody waits for them": """
import os, time
for n in range(200):
    child = os.fork()
    if child == 0:
        if os.fork() == 0:
            s = time.process_time()
            while time.process_time() - s < 0.2: pass
        os._exit(0)
    os.waitpid(child, 0)
    time.sleep(0.2)
""",
}


@pytest.mark.slow
@pytest.mark.parametrize("provider", BACKENDS_OF_THIS_MACHINE, indirect=True)
@pytest.mark.parametrize("program", _UNSEEN.values(), ids=_UNSEEN)
async def test_processor_time_counts_whoever_used_it(sandbox: Sandbox, program: str) -> None:
    limits = Limits(cpu_s=0.6, tree_cpu_s=0.6, wall_s=60)
    (result,) = await sandbox.run_tests(program, [Script()], limits=limits)

    assert result.outcome is Outcome.CPU_LIMIT


@pytest.mark.slow
@pytest.mark.parametrize("provider", BACKENDS_OF_THIS_MACHINE, indirect=True)
async def test_no_program_starves_itself(sandbox: Sandbox) -> None:
    """Its own children keep it waiting, in pieces too short to be seen."""
    program = """
import os, signal, time
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
def spin(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end: pass
if os.fork() == 0: spin(100)
for manager in range(2 * os.cpu_count()):
    if os.fork() == 0:
        while True:
            if os.fork() == 0:
                spin(0.02)
                os._exit(0)
            time.sleep(0.01)
time.sleep(100)
"""
    limits = Limits(cpu_s=1, tree_cpu_s=2, wall_s=1)
    (result,) = await sandbox.run_tests(program, [Script()], limits=limits)

    assert result.blame == "code"
    limits_of_code = (Outcome.CPU_LIMIT, Outcome.WALL_TIMEOUT, Outcome.PROCESS_LIMIT)
    assert result.outcome in limits_of_code  # the last, where a busy machine lets pieces pile up
