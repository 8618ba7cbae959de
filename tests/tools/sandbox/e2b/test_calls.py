"""Calls in machines of E2B: run once, held to their limits inside, blamed on the right one."""

import asyncio
import os
import shutil
import subprocess
import time
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from e2b_kit import Fault, StandIn, stand_in
from e2b_machine import POWER_OFF
from sandbox_kit import needs_a_wall, wall

from agentgym.errors import SandboxError
from agentgym.tools.sandbox.base import Call, Outcome, SandboxSpec, Script
from agentgym.tools.sandbox.e2b import E2BProvider, answers, bundle
from agentgym.tools.sandbox.e2b.errors import ServiceError
from agentgym.tools.sandbox.e2b.sandbox import E2BSandbox
from agentgym.tools.sandbox.e2b.service import Terms
from agentgym.tools.sandbox.limits import Limits

pytestmark = pytest.mark.slow

SILENCE_S = 3.0
COUNT = "[open('runs', 'a').write('x'), len(open('runs').read())][1]"


def slow(value: Any) -> Any:
    return pytest.param(value, marks=pytest.mark.slow)


@pytest.fixture
async def service() -> AsyncIterator[StandIn]:
    async with stand_in(wall()) as service:
        yield service


@pytest.fixture
async def sandbox(service: StandIn) -> AsyncIterator[E2BSandbox]:
    terms = Terms(silence_s=SILENCE_S, request_s=10)
    provider = E2BProvider(terms=terms, per_second=100, **service.settings)
    yield await provider.open()
    await provider.aclose()


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Little time for the tries, for tests in which all of them fail."""
    monkeypatch.setattr("agentgym.tools.sandbox.e2b.machine._PROBE_S", 1.0)


# run once


@pytest.mark.parametrize("drop", [slow("before"), "midway", slow("after")])
async def test_a_broken_connection_runs_nothing_twice(
    service: StandIn, sandbox: E2BSandbox, drop: str
):
    """The question is asked again under its id, and answered with what the first one came to."""
    await sandbox.run_cell("x = 0")
    service.fail("execute", Fault(drop=drop))
    result = await sandbox.run_cell(f"x += 1\nprint('said')\n(x, {COUNT})")

    assert result.value == (1, 1)
    assert result.stdout == "said\n"
    assert len(service.created) == 1


@pytest.mark.parametrize("interrupts", [True, slow(False)])
async def test_code_under_way_goes_on_when_the_connection_breaks(
    service: StandIn, sandbox: E2BSandbox, interrupts: bool
):
    """Whether the service interrupts what nobody waits for or not: no half run, no second run."""
    service.interrupts = interrupts
    service.fail("execute", Fault(drop="midway"))
    slow = f"import time; time.sleep(0.8); {COUNT}"
    result = await sandbox.run_cell(slow, limits=Limits(wall_s=10))

    assert result.value == 1
    assert len(service.created) == 1


@pytest.mark.parametrize("status", [slow(429), 502, slow(503)])
async def test_a_busy_service_is_asked_again_for_the_same_call(
    service: StandIn, sandbox: E2BSandbox, status: int
):
    """Its health says that the machine runs, so a 502 is not the end of it."""
    service.fail("execute", Fault(status=status))
    result = await sandbox.run_cell(COUNT)

    assert result.value == 1
    assert len(service.created) == 1


async def test_nonsense_from_the_service_is_not_an_answer(service: StandIn, sandbox: E2BSandbox):
    service.fail("execute", Fault(garbage=True))
    result = await sandbox.run_cell(COUNT)

    assert (result.outcome, result.value) == (Outcome.OK, 1)


async def test_tests_go_in_few_requests(service: StandIn, sandbox: E2BSandbox):
    """Every request is a way around half the world."""
    asked = service.count("execute")
    cases = [Call(function="f", args=[i]) for i in range(40)]
    results = await sandbox.run_tests("def f(x): return x * x", cases)

    assert [result.value for result in results] == [i * i for i in range(40)]
    assert service.count("execute") - asked == 3


# limits


async def test_limits_hold_inside_whatever_the_sdk_does(service: StandIn, sandbox: E2BSandbox):
    """The clock of a request plays no part in it."""
    started = time.monotonic()
    slept = await sandbox.run_cell("import time; time.sleep(60)", limits=Limits(wall_s=0.4))
    spun = await sandbox.run_cell("while True: pass", limits=Limits(cpu_s=0.4))

    assert (slept.outcome, slept.blame) == (Outcome.WALL_TIMEOUT, "code")
    assert (spun.outcome, spun.blame) == (Outcome.CPU_LIMIT, "code")
    assert time.monotonic() - started < 30
    assert len(service.created) == 1


async def test_a_cell_stopped_in_time_keeps_its_names(sandbox: E2BSandbox):
    """It is interrupted first, as one does at a keyboard."""
    code = "kept = 1\nimport time; time.sleep(60)"
    result = await sandbox.run_cell(code, limits=Limits(wall_s=0.4))
    after = await sandbox.run_cell("kept")

    assert result.outcome is Outcome.WALL_TIMEOUT
    assert not result.state_lost
    assert after.value == 1


@pytest.mark.slow
async def test_a_long_call_is_not_taken_for_a_dead_machine(sandbox: E2BSandbox):
    """The bridge is heard every now and then, while the code says nothing."""
    result = await sandbox.run_cell(f"import time; time.sleep({1.2 * SILENCE_S}); 'done'")

    assert result.value == "done"
    assert result.attempts == 1


# blame


@pytest.mark.slow
async def test_a_machine_that_says_nothing_is_replaced(service: StandIn, sandbox: E2BSandbox):
    """What was defined before is defined again; the silent machine is ended, its code with it."""
    await sandbox.run_cell("x = 41")
    await sandbox.write_file("kept.txt", b"kept")
    first = set(service.running)
    service.fail("execute", Fault(hang=True))
    result = await sandbox.run_cell("x + 1, open('kept.txt').read()")

    assert result.value == (42, "kept")
    assert result.attempts == 2
    assert not first & set(service.running)
    assert len(service.running) == 1


async def test_signs_of_life_put_the_end_off_but_not_for_ever():
    """Code that is root in its machine could send them itself."""

    async def listen() -> None:
        async with asyncio.timeout(0.2) as limit:
            ear = answers.Ear(limit, 0.2, 0.6)
            while True:
                ear.hear(SimpleNamespace(line="x"))
                await asyncio.sleep(0.02)

    started = time.monotonic()
    with pytest.raises(TimeoutError):
        await listen()

    assert 0.5 < time.monotonic() - started < 5


async def test_an_interpreter_started_anew_is_not_taken_for_the_old_one(
    service: StandIn, sandbox: E2BSandbox
):
    """The service replaces one that died without a word; names would be missing in silence."""
    await sandbox.run_cell("x = 1")
    service.kill_interpreters()
    await asyncio.sleep(0.2)
    result = await sandbox.run_cell("x")

    assert (result.value, result.attempts) == (1, 2)
    assert len(service.created) == 2


async def test_a_life_that_ended_in_a_call_is_the_services_doing(
    service: StandIn, sandbox: E2BSandbox
):
    """Once is chance: in a fresh machine the same call ends well."""
    running = asyncio.create_task(sandbox.run_cell("import time; time.sleep(0.5); 'done'"))
    await asyncio.sleep(0.2)
    for id in list(service.running):
        service.end(id)
    result = await running

    assert (result.value, result.attempts) == ("done", 2)


async def test_code_that_ends_its_machine_cannot_choose_to_be_unscored(
    service: StandIn, sandbox: E2BSandbox
):
    """Code can be root in there and switch the machine off; twice is no chance."""
    needs_a_wall()
    program = f"import time\ndef f():\n    open({POWER_OFF!r}, 'w').close()\n    time.sleep(9)\n"
    (result,) = await sandbox.run_tests(program, [Call(function="f")])

    assert (result.outcome, result.blame, result.attempts) == (Outcome.LOST, "code", 2)
    assert not result.has_value
    assert len(service.created) == 2
    assert (await sandbox.run_cell("'and on it goes'")).ok


async def test_code_that_dies_by_the_clock_is_to_blame(sandbox: E2BSandbox):
    """A cell that ran well when it was sent, and ends the machine when it is done again."""
    needs_a_wall()
    bomb = f"open({POWER_OFF!r}, 'w').close()\n    time.sleep(9)"
    await sandbox.run_cell(f"import time\nif time.time() > {time.time() + 2}:\n    {bomb}")
    await asyncio.sleep(2)
    result = await sandbox.run_cell(f"if True:\n    {bomb}")

    assert (result.outcome, result.blame) == (Outcome.LOST, "code")


@pytest.mark.parametrize(
    "victim", ["os.getppid()", pytest.param("bridge()", marks=pytest.mark.slow)]
)
async def test_code_that_kills_what_runs_it_is_to_blame(sandbox: E2BSandbox, victim: str):
    """The runner, or the service's own interpreter above it; the cases around it are judged."""
    program = (
        "import os, signal\n"
        "def bridge():\n"
        "    return int(open(f'/proc/{os.getppid()}/stat').read().rsplit(')', 1)[1].split()[1])\n"
        f"def f(x):\n    if x == 1: os.kill({victim}, signal.SIGKILL)\n    return x\n"
    )
    cases = [Call(function="f", args=[i]) for i in range(3)]
    results = await sandbox.run_tests(program, cases)

    assert [r.outcome for r in results] == [Outcome.OK, Outcome.LOST, Outcome.OK]
    assert all(r.blame == "code" for r in results)


async def test_a_runner_stopped_by_the_code_is_noticed(service: StandIn, sandbox: E2BSandbox):
    """It does not answer any more, but does not end either: the call is still bounded."""
    program = "import os, signal, time\ndef f():\n    os.kill(os.getppid(), signal.SIGSTOP)\n"
    limits = Limits(cpu_s=0.2, wall_s=0.2)
    started = time.monotonic()
    (result,) = await sandbox.run_tests(program, [Call(function="f")], limits=limits)

    assert (result.outcome, result.blame) == (Outcome.LOST, "code")
    assert time.monotonic() - started < 25


@pytest.mark.slow
@pytest.mark.usefixtures("hasty")
async def test_an_outage_is_nobodys_fault(service: StandIn, sandbox: E2BSandbox):
    """The machine is gone and there is no other: an error, which leaves the trajectory out."""
    service.fail("create", *[Fault(status=503)] * 50)
    for id in list(service.running):
        service.end(id)
    with pytest.raises(SandboxError, match="creating a sandbox failed"):
        await sandbox.run_tests("def f(): return 1", [Call(function="f")])


async def test_a_machine_that_never_runs_code_is_not_handed_out(service: StandIn):
    """The service creates machines, and none of them works."""
    service.fail("execute", *[Fault(status=500)] * 50)
    provider = E2BProvider(terms=Terms(attempts=2), per_second=100, **service.settings)
    with pytest.raises(SandboxError, match="does not run code"):
        await provider.open()

    assert not service.running


@pytest.mark.slow
@pytest.mark.usefixtures("hasty")
async def test_a_service_that_went_away_is_infrastructure(service: StandIn):
    terms = Terms(attempts=1, request_s=2)
    provider = E2BProvider(terms=terms, per_second=100, **service.settings)
    sandbox = await provider.open()
    await service.refuse()
    with pytest.raises(SandboxError):
        await sandbox.run_cell("1")


@pytest.mark.slow
async def test_many_at_once_are_not_mixed_up(service: StandIn):
    """32 sandboxes in flight, each with a value of its own."""
    provider = E2BProvider(machines=8, per_second=1000, **service.settings)

    async def one(number: int) -> Any:
        sandbox = await provider.open()
        await sandbox.run_cell(f"mine = {number}")
        result = await sandbox.run_cell("mine * 2")
        await sandbox.close()
        return result.value

    values = await asyncio.gather(*(one(number) for number in range(16)))
    await provider.aclose()

    assert values == [2 * number for number in range(16)]


# what comes back


@pytest.mark.parametrize(
    "stdout",
    [
        "",
        "MARK",
        "MARK{}MARK",
        "MARKbm9uc2Vuc2U=MARK",
        "MARKeJwDAAAAAAE=MARK",
        "MARKeJyrViouSSxJLVayUqpVSs7PLUgsSQUAMPIF9w==MARKMARK",
    ],
)
def test_what_is_no_answer_of_the_bridge_is_no_answer(stdout: str):
    execution = SimpleNamespace(logs=SimpleNamespace(stdout=[stdout]), error=None)
    with pytest.raises(ServiceError):
        answers.read(execution, "MARK")


async def test_an_answer_in_many_pieces_is_put_together(sandbox: E2BSandbox):
    result = await sandbox.run_cell("'x' * 900_000")

    assert len(result.value) == 900_000


@pytest.mark.slow
@pytest.mark.parametrize("version", ["3.10", "3.12", "3.13"])
async def test_the_machines_python_may_be_another_than_ours(version: str):
    """The template decides; what is sent there is compiled there."""
    python = other_python(version)
    async with stand_in(python=python) as service:
        provider = E2BProvider(**service.settings)
        sandbox = await provider.open()
        cell = await sandbox.run_cell("import sys\nsys.version_info[:2]")
        spun = await sandbox.run_cell("while True: pass", limits=Limits(cpu_s=0.2))
        (called,) = await sandbox.run_tests("def f(*, a): return {a}", [CASE])
        shell = await sandbox.run_shell("cat", stdin="hi")
        await sandbox.write_file("a/b", b"c")
        data = await sandbox.read_file("a/b")
        await provider.aclose()

    assert cell.value == tuple(map(int, version.split(".")))
    assert (spun.outcome, spun.state_lost) == (Outcome.CPU_LIMIT, False)
    assert called.value == {(1, b"2")}
    assert (shell.stdout, data) == ("hi", b"c")


CASE = Call(function="f", kwargs={"a": (1, b"2")})


def other_python(version: str) -> str:
    """An interpreter of another version; skips where this machine has none."""
    named = shutil.which(f"python{version}")
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = [*map(str, pyenv.glob(f"{version}.*/bin/python")), *([named] if named else [])]
    for path in found:
        if subprocess.run([path, "-c", ""], capture_output=True, check=False).returncode == 0:
            return path
    pytest.skip(f"no Python {version} on this machine")


async def test_what_the_code_prints_is_never_taken_for_an_answer(sandbox: E2BSandbox):
    """It goes through pipes of its own; the interpreter that answers runs no foreign code."""
    program = "import sys\nprint('MARK' * 3)\nsys.stderr.write('{\"answers\": []}')\n"
    (result,) = await sandbox.run_tests(program, [Script()])

    assert (result.ok, result.stdout) == (True, "MARKMARKMARK\n")
    assert result.stderr == '{"answers": []}'


def test_what_goes_in_holds_inputs_only():
    """Markers are drawn per call, and the text is small."""
    asked, again = (
        bundle.question("", SandboxSpec(), [], seconds=1.0, beat_s=1.0) for _ in range(2)
    )

    assert asked["id"] != again["id"]
    assert len(bundle.cell(asked, "m")) < 60_000
    compile(bundle.cell(asked, "m"), "cell", "exec")
