"""The grader around a real sandbox: what counts, who is to blame, what is left behind."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from agentgym.envs.code.grading import (
    AssertTest,
    CallTest,
    StdioTest,
    grade,
)
from agentgym.errors import ConfigError, SandboxError
from agentgym.tools.sandbox.base import (
    Case,
    ExecResult,
    Level,
    Outcome,
    Sandbox,
    SandboxProvider,
    SandboxSpec,
)
from agentgym.tools.sandbox.limits import Limits

pytestmark = pytest.mark.asyncio(loop_scope="module")

SQUARE = "def f(x):\n    return x * x\n"


class Watched:
    """A provider that remembers what was asked of its sandboxes, and may spoil the results."""

    backend, level = "watched", Level.NAMESPACES

    def __init__(self, provider: SandboxProvider, **changes: Any) -> None:
        self._provider, self._changes = provider, changes
        self.asked: list[tuple[str, list[Case]]] = []
        self.num_open = self.num_opened = 0
        self.num_missing = 0

    async def open(self, spec: SandboxSpec | None = None) -> Sandbox:
        sandbox = await self._provider.open(spec)
        self.num_open += 1
        self.num_opened += 1
        run, close = sandbox.run_tests, sandbox.close

        async def run_tests(
            program: str, cases: Sequence[Case], *, limits: Limits | None = None
        ) -> list[ExecResult]:
            self.asked.append((program, list(cases)))
            results = await run(program, cases, limits=limits)
            kept = results[: len(results) - self.num_missing]
            return [replace(result, **self._changes) for result in kept]

        async def closing() -> None:
            self.num_open -= 1
            await close()

        sandbox.run_tests = run_tests  # type: ignore[method-assign]
        sandbox.close = closing  # type: ignore[method-assign]
        return sandbox

    async def probe(self) -> Any:
        return await self._provider.probe()

    async def aclose(self) -> None:
        """The provider's own."""


async def test_a_share_of_the_tests_is_passed(provider: SandboxProvider):
    """In the order of the tests, whatever the order of the runs."""
    tests = [CallTest(function="f", args=(x,), expected=x * x if x % 3 else -1) for x in range(12)]
    result = await grade(provider, SQUARE, tests, seed=1)

    assert result.passed == tuple(x % 3 != 0 for x in range(12))
    assert result.fraction == 8 / 12
    assert not result.all_passed
    assert result.tamper_resistance == "full"
    assert result.results[0].reason == "not what was expected: 0"


async def test_tests_without_number_are_an_error_of_the_data_set(provider: SandboxProvider):
    """Never a pass."""
    with pytest.raises(ConfigError, match="without tests"):
        await grade(provider, SQUARE, [])
    with pytest.raises(ConfigError, match="no output at all"):
        await grade(provider, SQUARE, [StdioTest(expected=" \n"), StdioTest(expected="")])


@pytest.mark.parametrize("program", [None, "", " \n"])
async def test_no_program_passes_nothing(provider: SandboxProvider, program: str | None):
    """And needs no sandbox; the tests are looked at all the same."""
    watched = Watched(provider)
    result = await grade(watched, program, [StdioTest(expected="1")])

    assert result.passed == (False,)
    assert watched.num_opened == 0
    with pytest.raises(ConfigError):
        await grade(watched, program, [])


async def test_what_is_expected_is_not_asked_with_the_program(provider: SandboxProvider):
    """In no case, program or set-up that goes where the program is."""
    watched = Watched(provider)
    tests = [
        StdioTest(stdin="3", expected="98765"),
        CallTest(function="f", args=(3,), expected=98765),
        AssertTest(source="assert f(3) == 98765"),
        AssertTest(source="assert abs(f(3) - 98765) < 1"),
        AssertTest(source="while 1:\n    assert f(3) == 98765\n    break"),
    ]
    program = "def f(x):\n    return 98764 + (x > 2)\nif __name__ == '__main__':\n    print(f(3))\n"
    result = await grade(watched, program, tests)
    with_program = [case for asked, cases in watched.asked if asked == program for case in cases]

    assert result.all_passed
    assert len(with_program) == 5
    assert "98765" not in repr(with_program)
    assert program not in repr([cases for asked, cases in watched.asked if asked != program])


async def test_judges_have_a_sandbox_of_their_own_and_all_are_closed(provider: SandboxProvider):
    """One for the program; another only where test code is run."""
    watched = Watched(provider)
    await grade(watched, SQUARE, [AssertTest(source="assert f(3) == 9")])
    assert (watched.num_opened, watched.num_open) == (1, 0)

    await grade(watched, SQUARE, [AssertTest(source="assert round(f(3), 1) == 9")])
    assert (watched.num_opened, watched.num_open) == (3, 0)


async def test_the_order_of_runs_is_shuffled_by_the_seed(provider: SandboxProvider):
    """A program must not know by its turn what is asked of it."""
    orders = []
    for seed in (1, 1, 2):
        watched = Watched(provider)
        tests = [CallTest(function="f", args=(x,), expected=x * x) for x in range(8)]
        assert (await grade(watched, SQUARE, tests, seed=seed)).all_passed
        cases = [case for _, some in watched.asked for case in some]
        orders.append([case.args[0] for case in cases])  # type: ignore[union-attr]

    assert orders[0] == orders[1] != orders[2]
    assert sorted(orders[0]) == list(range(8)) != orders[0]


async def test_fewer_results_than_tests_are_failures(provider: SandboxProvider):
    """What is missing was not passed."""
    watched = Watched(provider)
    watched.num_missing = 1
    tests = [CallTest(function="f", args=(x,), expected=x * x) for x in range(3)]
    result = await grade(watched, SQUARE, tests)

    assert sum(result.passed) == 2
    assert "there is no result" in [each.reason for each in result.results]


async def test_a_failure_of_the_infrastructure_is_nobodys_score(provider: SandboxProvider):
    """It raises, so that the trajectory is left out."""
    watched = Watched(provider, blame="infra", outcome=Outcome.STARVED, evidence="busy")

    with pytest.raises(SandboxError, match="starved: busy"):
        await grade(watched, SQUARE, [CallTest(function="f", args=(1,), expected=1)])
    assert watched.num_open == 0


@pytest.mark.slow
async def test_large_answers_fit(provider: SandboxProvider):
    """Limits on output grow with what is expected."""
    tests = [
        StdioTest(stdin="", expected="ab " * 100_000),
        CallTest(function="f", args=(400_000,), expected=[1] * 400_000),
    ]
    program = "def f(n):\n    return [1] * n\nif __name__ == '__main__':\n    print('ab ' * 100000)"

    assert (await grade(provider, program, tests)).all_passed


async def test_the_reason_says_how_a_program_ended(provider: SandboxProvider):
    """So that a record tells a wrong answer from a crash and a timeout."""
    program = "def f(x):\n    if x: raise KeyError('here')\n    while True: pass\n"
    tests = [CallTest(function="f", args=(x,), expected=1) for x in (1, 0)]
    crash, spin = (
        await grade(provider, program, tests, spec=SandboxSpec(limits=Limits(cpu_s=0.3)))
    ).results

    assert crash.outcome is Outcome.ERROR
    assert crash.reason == "error: KeyError: 'here'"
    assert spin.outcome is Outcome.CPU_LIMIT
    assert spin.cpu_s > 0.2


async def test_the_program_that_ends_a_played_test_is_told(provider: SandboxProvider):
    """Code that cannot be rewritten says no less."""
    test = AssertTest(source="while 1:\n    assert f(1) == 1\n    break")
    (result,) = (await grade(provider, "import os\ndef f(x): os._exit(3)", [test])).results

    assert result.outcome is Outcome.ERROR
    assert result.reason.startswith("f ended with error")


PLAYED = [
    ("def f(a): a.append(1)", "a = []\nwhile len(a) < 3:\n    f(a)\nassert a == [1, 1, 1]", True),
    ("def f(d): d['x'] = 1", "while 1:\n    d = {}\n    f(d)\n    assert d == {'x': 1}\n    break",
     True),
    ("def f(x): raise ValueError('no')",
     "while 1:\n    try:\n        f(1)\n    except ValueError as error:\n"
     "        assert str(error) == 'no'\n    break", True),
    ("def f(x): return x",
     "while 1:\n    try:\n        f(1)\n        assert False\n"
     "    except ValueError:\n        assert 1 == 1\n    break", False),
    ("def f(x): yield x", "while 1:\n    assert next(f(1)) == 1\n    break", True),
    ("def f(x): return x", "assert all(f(x) == x for x in range(4))", True),
    ("def f(x): return min(x, 2)", "assert all(f(x) == x for x in range(4))", False),
    ("def f(x): return x", "def g(x):\n    return f(x) + 1\nassert g(1) == 2", True),
    ("def f(x): return x",
     "import unittest\nclass T(unittest.TestCase):\n    def test(self):\n"
     "        for x in map(int, '12'):\n            self.assertRegex(str(f(x)), '[12]')", True),
    ("def f(x): return x\ndef g(x): return -x",
     "import random\nn = 0\nwhile n < 3:\n    n += 1\n    assert f(n) == -g(n)", True),
    ("def f(x): return x", "while 1:\n    f(1)\n    break\nif False:\n    assert f(2)", False),
    ("def f(x): return float('nan')", "while 1:\n    assert f(1) == f(1)\n    break", False),
]  # fmt: skip


@pytest.mark.parametrize(("program", "source", "right"), PLAYED)
async def test_code_that_cannot_be_rewritten_is_played(
    provider: SandboxProvider, program: str, source: str, right: bool
):
    """With stand-ins for the functions, call by call; a test without an assert is no pass."""
    functions = ("f", "g") if "def g" in program else ("f",)
    result = await grade(provider, program, [AssertTest(source=source, functions=functions)])

    assert result.all_passed is right
    assert result.tamper_resistance == "partial"


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("while 1:\n    assert f(lambda: 1) == 1\n    break", "no plain data"),
        ("import os\nwhile 1:\n    assert f(os.urandom(4)) or f(0)\n    break", "the same way"),
        ("import no_such_module\nwhile 1:\n    assert f(1) == 1\n    break", "no_such_module"),
        ("import no_such_module\nassert no_such_module.near(f(1), 1)", "no_such_module"),
        ("while 1:\n    assert 1 == 1\n    break", "without calling"),
    ],
)
async def test_tests_that_cannot_be_served_are_errors_of_the_data_set(
    provider: SandboxProvider, source: str, words: str
):
    """Not a score of 0 for every program."""
    with pytest.raises(ConfigError, match=words):
        await grade(provider, "def f(x): return 1", [AssertTest(source=source, functions=("f",))])


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("def f(x): import no_such_module", "no_such_module"),
        ("def f(x): raise ImportError('no module')", "no module"),
        ("def f(x): return object()", "no plain data"),
        ("def f(x): return 0", "more than 9 times"),
        pytest.param(
            "def f(x):\n    for _ in range(10**7): pass\n    return 0",
            "ran out of time",
            marks=pytest.mark.slow,
        ),
    ],
)
async def test_a_program_cannot_pass_off_its_failure_as_one_of_the_data_set(
    provider: SandboxProvider, program: str, reason: str, monkeypatch: pytest.MonkeyPatch
):
    """That would stop the run; whatever it answers is its own."""
    monkeypatch.setattr("agentgym.envs.code.grading.proxies.MAX_CALLS", 9)
    source = "x = 0\nwhile f(x) == 0:\n    x += 1\nassert f(1) == 1"
    (result,) = (
        await grade(
            provider,
            program,
            [AssertTest(source=source)],
            spec=SandboxSpec(limits=Limits(cpu_s=0.5)),
        )
    ).results

    assert not result.passed
    assert reason in result.reason


@pytest.mark.slow
async def test_patience_has_an_end(provider: SandboxProvider, monkeypatch: pytest.MonkeyPatch):
    """Hundreds of tests that each run out of time would hold up a whole batch."""
    monkeypatch.setattr("agentgym.envs.code.grading.grader._PATIENCE_S", 0.5)
    tests = [CallTest(function="f", args=(x,), expected=x) for x in range(40)]
    spec = SandboxSpec(limits=Limits(cpu_s=0.2))
    result = await grade(provider, "def f(x):\n    while 1: pass", tests, spec=spec)
    reasons = [each.reason for each in result.results]

    assert result.fraction == 0.0
    assert {each.outcome for each in result.results} == {Outcome.CPU_LIMIT}
    assert sum("not tried" in reason for reason in reasons) > 30


@pytest.mark.slow
async def test_numpy_may_be_used_by_program_and_tests(provider: SandboxProvider):
    """Where it is asked for by name; its arrays come out as lists."""
    program = "import numpy as np\ndef f(n):\n    return np.arange(n)"
    tests = [
        CallTest(function="f", args=(3,), expected=[0, 1, 2]),
        AssertTest(source="import numpy as np\nassert np.array_equal(f(3), np.array([0, 1, 2]))"),
    ]

    assert (await grade(provider, program, tests, spec=SandboxSpec(packages=("numpy",)))).all_passed


@pytest.mark.slow
async def test_judgements_that_break_do_not_take_others_with_them(provider: SandboxProvider):
    """One that never ends is asked alone; the others are decided."""
    spin = "def same(a, b):\n    while a < 0:\n        pass\n    return a == b\n"
    checks = "\n".join(f"assert same(f({x}), {x})" for x in (1, -1, 2))
    tests = [AssertTest(source=spin + line) for line in checks.split("\n")]
    result = await grade(
        provider, "def f(x): return x", tests, spec=SandboxSpec(limits=Limits(cpu_s=0.3))
    )

    assert result.passed == (True, False, True)


@pytest.mark.parametrize(
    ("function", "program", "passed"),
    [
        ("f", "class Solution:\n    def f(self, x):\n        return x * x", True),
        ("Solution.f", SQUARE, True),
        ("f", "class Solution:\n    def g(self, x):\n        return x * x", False),
        ("f", f"{SQUARE}\nclass Solution:\n    def f(self, x):\n        return 0", True),
        ("Solution.f", f"{SQUARE}\nclass Solution:\n    def f(self, x):\n        return 0", False),
        ("Solver.f", SQUARE, False),
        ("f", f"\ufeff{SQUARE}", True),
    ],
)
async def test_a_function_may_be_a_method_of_a_solution(
    provider: SandboxProvider, function: str, program: str, passed: bool
):
    """And the other way round, since data sets accept both."""
    test = CallTest(function=function, args=(3,), expected=9)

    assert (await grade(provider, program, [test])).all_passed == passed


async def test_carriage_returns_of_an_input_are_no_part_of_its_lines(provider: SandboxProvider):
    test = StdioTest(stdin="a\r\nb\r\n", expected="['a', 'b']\r\n")

    assert (await grade(provider, "print([input(), input()])", [test])).all_passed


@pytest.mark.parametrize(
    "source", ["assert (f(2) == 5, 'no')", "def test():\n    assert (f(2), 1)"]
)
async def test_an_assert_on_a_tuple_is_refused(provider: SandboxProvider, source: str):
    """It holds whatever the program does."""
    with pytest.raises(ConfigError, match="on a tuple always holds"):
        await grade(provider, SQUARE, [AssertTest(source=source)])
