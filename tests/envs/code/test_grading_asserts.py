"""Test code is taken apart so that the program is asked, and never told."""

import ast
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym.envs.code.grading.asserts import rewrite
from agentgym.envs.code.grading.judging import answers_of, judge_here
from agentgym.envs.code.grading.names import NotRewritable
from agentgym.envs.code.grading.planning import plan, question_of
from agentgym.envs.code.grading.questions import Check
from agentgym.envs.code.grading.tests import AssertTest
from agentgym.errors import ConfigError

SECRET = "98765"


def checks(source: str, setup: str = "", functions: tuple[str, ...] = ()) -> list[Check]:
    return rewrite(AssertTest(source=source, setup=setup, functions=functions))


def beside(check: Check) -> str:
    """All that gets to where the program is."""
    case = question_of(check)
    return case.setup + case.source


def judged(check: Check, program: str) -> bool | None:
    """The verdict on a program that is trusted, asked here."""
    names: dict[str, Any] = {}
    case = question_of(check)
    exec(program, names)
    exec(case.setup, names)
    answers = answers_of(check, eval(case.source, names))
    return None if answers is None else judge_here(check, answers)


TOLD = [
    f"assert f(3) == {SECRET}",
    f"assert {SECRET} == f(3)",
    f"assert f(3) != {SECRET}",
    f"assert not f(3) == {SECRET}",
    f"assert f(3) in [1, {SECRET}]",
    f"assert abs(f(3) - {SECRET}) < 1e-6",
    f"import math\nassert math.isclose(f(3), {SECRET})",
    f"assert math.isclose(f(3), {SECRET}, rel_tol=1e-6)",
    f"assert round(f(3), 2) == {SECRET}",
    f"assert isclose(f(3), {SECRET})",
    f"assert f(3) == approx({SECRET})",
    f"assert f(3).__eq__({SECRET})",
    f"assert sorted(f(3)) == [{SECRET}]",
    f"assert set(f(3)) == {{{SECRET}}}",
    f"assert set(f(3)) == set([{SECRET}])",
    f"assert f(3).lower() == '{SECRET}'",
    f"assert f(3).startswith('{SECRET}')",
    f"assert f(3)[0] == {SECRET} and len(f(3)) > 1",
    f"assert {SECRET} - 1 < f(3) <= {SECRET}",
    f"want = {SECRET}\nassert f(3) == want",
    f"result = f(3)\nassert result == {SECRET}",
    f"ok = f(3) == {SECRET}\nassert ok",
    f"cases = [(3, {SECRET})]\nfor x, want in cases:\n    assert f(x) == want",
    f"cases = [(3, {SECRET})]\nassert f(cases[0][0]) == cases[0][1]",
    f"cases = {{3: {SECRET}}}\nfor x in [3]:\n    assert f(x) == cases[x]",
    f"def check(candidate):\n    assert candidate(3) == {SECRET}\ncheck(f)",
    f"def same(a, b):\n    assert a == b or abs(a - b) < 1\nsame(f(3), {SECRET})",
    f"def good(a):\n    return a == {SECRET}\nassert good(f(3))",
    f"def near(a, b):\n    if abs(a - b) > 1:\n        raise AssertionError\nnear(f(3), {SECRET})",
    f"from collections import Counter\nassert Counter(f(3)) == Counter([{SECRET}])",
    f"import numpy as np\nassert np.allclose(f(3), [{SECRET}])",
    f"import pytest\nassert f(3) == pytest.approx({SECRET})",
    f"import pytest\nwith pytest.raises(ValueError, match='{SECRET}'):\n    f(3)",
    f"import unittest\nclass T(unittest.TestCase):\n    def test(self):\n"
    f"        self.assertEqual(f(3), {SECRET})",
    f"class T:\n    pass\ndef test_it():\n    assert f(3) == {SECRET}",
    f"import pytest\n@pytest.mark.parametrize('x, y', [(3, {SECRET})])\n"
    f"def test_it(x, y):\n    assert f(x) == y",
    f"s = Thing(3)\ns.push(4)\nassert s.pop() == {SECRET}",
    f"x, y = f(3)\nassert x == {SECRET}",
    f"assert [f(1), f(2)] == [{SECRET}, {SECRET}]",
    f"assert isinstance(f(3), int) and f(3) == {SECRET}, 'no {SECRET}'",
]


@pytest.mark.parametrize("source", TOLD)
def test_what_is_expected_never_gets_to_the_program(source: str):
    """A solution can read all of its process; the answer must not be there to be read."""
    found = checks(source)

    assert found
    for check in found:
        assert SECRET not in beside(check)
        assert "f(" in beside(check) or "Thing(" in beside(check)
    assert any(SECRET in check.judgement + check.judge_setup for check in found)


literals = st.recursive(
    st.integers(-99, 99) | st.booleans() | st.none() | st.text("ab", max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.tuples(inner, inner),
    max_leaves=6,
)
FORMS = [
    "assert f({x!r}) == {y!r}",
    "assert {y!r} == f({x!r})",
    "assert not f({x!r}) != {y!r}",
    "r = f({x!r})\nassert r == {y!r}",
    "for a, b in [({x!r}, {y!r})]:\n    assert f(a) == b",
    "def check(g):\n    assert g({x!r}) == {y!r}\ncheck(f)",
]


@given(literals, literals, literals, st.sampled_from(FORMS))
def test_a_verdict_is_that_of_the_assert_itself(x: Any, y: Any, given: Any, form: str):
    """For a program that returns a constant, the original code is the oracle."""
    source, program = form.format(x=x, y=y), f"def f(x): return {given!r}"
    try:
        exec(source, {"f": lambda x: given})
        right = True
    except AssertionError:
        right = False

    (check,) = checks(source)
    assert judged(check, program) is right


@pytest.mark.parametrize(
    ("source", "program", "verdicts"),
    [
        ("assert f(1)\nassert not f(0)", "def f(x): return x", [True, True]),
        ("assert f(1) is None", "def f(x): pass", [True]),
        ("assert f(1) is True", "def f(x): return 1", [False]),
        ("assert f(1) is not None", "def f(x): pass", [False]),
        ("assert str(f(1)) == '0.5'", "from decimal import Decimal\n"
         "def f(x): return Decimal(x) / 2", [True]),
        ("assert len(f(3)) == 3", "from collections import deque\n"
         "def f(n): return deque(range(n))", [True]),
        ("assert sum(map(int, f(3))) == 3", "def f(n): return '12'", [None]),
        ("assert f(2) in (1, 2)", "def f(x): return x", [True]),
        ("assert 1 < f(2)", "def f(x): return x", [True]),
        ("assert f(2) > 1", "def f(x): return 'a'", [False]),
        ("assert list(f(3)) == [0, 1, 2]", "def f(n): yield from range(n)", [True]),
        ("a = [2, 1]\nf(a)\nassert a == [1, 2]", "def f(a): a.sort()", [True]),
        ("s = S()\ns.add()\nassert s.n == 1\ns.add()\nassert s.n == 2",
         "class S:\n    n = 0\n    def add(self): self.n += 1", [True, True]),
        ("s = S()\nassert s.next() == 1\nassert s.next() == 2",
         "class S:\n    n = 0\n    def next(self):\n        self.n += 1\n        return self.n",
         [True, True]),
        (
            "assert next_id() == 1\nassert next_id() == 2\nassert next_id() == 3",
            "n = 0\ndef next_id():\n    global n\n    n += 1\n    return n",
            [True, True, True],
        ),
        ("a = f(1)\nb = f(2)\na = f(3)\nassert (a, b) == (3, 2)", "def f(x): return x", [True]),
        ("set_to(5)\nassert get() == 5",
         "v = 0\ndef set_to(x):\n    global v\n    v = x\ndef get(): return v", [True]),
        ("try:\n    f(1)\n    assert False\nexcept ValueError:\n    pass",
         "def f(x): raise ValueError", [True]),
        ("try:\n    f(1)\nexcept ValueError:\n    pass\nelse:\n    assert False",
         "def f(x): return 1", [False]),
        ("import pytest\nwith pytest.raises((KeyError, LookupError)):\n    f(1)",
         "def f(x): return [][1]", [True]),
        ("import pytest\nwith pytest.raises(Oops):\n    f(1)",
         "class Oops(Exception): pass\ndef f(x): raise Oops", [True]),
        ("for i in range(3):\n    assert f(i) == i", "def f(x): return x", [True] * 3),
        ("assert f(3) == range(3)", "def f(x): return [0, 1, 2]", [None]),
        ("if 1 > 2:\n    assert f(1) == 2\nelse:\n    assert f(1) == 1", "f = int", None),
        ("from solution import f as g\nassert g(1) == 1", "def f(x): return x", [True]),
        ("import solution\nassert solution.f(1) == 1", "def f(x): return x", [True]),
        ("x: int = f(1)\nassert x == 1", "def f(x): return x", [True]),
        ("def helper(x):\n    return x + 1\nassert f(helper, 1) == 2",
         "def f(g, x): return g(x)", [True]),
        ("assert f(lambda x: x * 2, [1]) == [2]", "def f(g, a): return [*map(g, a)]", [True]),
    ],
)  # fmt: skip
def test_forms_are_followed(source: str, program: str, verdicts: list[bool] | None):
    """Each as Python would run it."""
    if verdicts is None:
        with pytest.raises(NotRewritable):
            checks(source)
        return

    assert [judged(check, program) for check in checks(source)] == verdicts


def test_a_variable_that_is_bound_anew_is_asked_once():
    """A loop of a thousand tests would call the program half a million times."""
    found = checks("for x, y in [(1, 2), (3, 4), (5, 6)]:\n    r = f(x)\n    assert r == y")

    assert [check.setup for check in found] == ["r = f(1)", "r = f(3)", "r = f(5)"]
    assert [check.judgement for check in found] == ["_v0 == 2", "_v0 == 4", "_v0 == 6"]


def test_a_name_of_the_program_may_be_that_of_a_builtin():
    """Some data sets ask for a function called `sum`; they say so."""
    (check,) = checks("assert sum(2, 3) == 6", functions=("sum",))

    assert check.questions == ("sum(2, 3)",)
    assert judged(check, "def sum(a, b): return a * b") is True


@pytest.mark.parametrize(
    "source", ["assert near(f(3), 4)", "while 1:\n    assert near(f(3), 4)\n    break"]
)
def test_what_nobody_defines_is_not_asked_of_the_program(source: str):
    """It could bring a `near` to its own liking; that the names are listed says it need not."""
    with pytest.raises(ConfigError, match=r"uses near, .* none of the program's f"):
        plan([AssertTest(source=source, functions=("f",))])


def test_stubs_of_the_program_in_the_set_up_are_left_out():
    """The prompt of HumanEval is one, beside helpers that the tests need."""
    setup = "def help(x): return x\ndef f(x):\n    pass"
    (check,) = checks("assert help(f(1)) == 1", setup, ("f",))

    assert "def f" not in check.judge_setup
    assert "def help" in check.judge_setup


@pytest.mark.parametrize(
    "source",
    [
        "while True:\n    assert f(1) == 2\n    break",
        "import random\nfor x in [random.random()]:\n    assert f(x) == x",
        "import random\na = [random.random()]\nassert f(a) == sorted(a)",
        "assert all(f(x) == y for x, y in [(1, 2)])",
        "def g(x): return f(x) + 1\nassert g(1) == 3",
        "if f(1):\n    assert f(2) == 3",
        "with open('x') as file:\n    assert f(1) == 2",
        "try:\n    assert f(1) == 2\nexcept Exception:\n    pass",
        "a = object()\nassert f(a) == a",
        "assert f(1) == 2\nassert 1 == 2",
        "x = [1]\nx.append(2)\nassert f(x) == 3",
        "a = f(1)\nb = a + 1\na = f(2)\nassert b == 2",
        "from math import *\nassert isclose(f(1), 2)",
        "_v0 = 3\nassert f(1) == _v0",
    ],
)
def test_what_cannot_be_followed_is_said(source: str):
    """Rather than rewritten into something else."""
    with pytest.raises(NotRewritable):
        checks(source)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("", "checks nothing"),
        ("import os", "checks nothing"),
        ("assert True", "checks nothing"),
        ("def check(candidate):\n    assert candidate(1) == 2", "checks nothing"),
        ("f(1)", "checks nothing"),
        ("assert f(", "no Python"),
        ("\0", "no Python"),
        ("-" * 100_000 + "1", "no Python"),
    ],
)
def test_code_that_tests_nothing_is_refused(source: str, words: str):
    """No program must pass for lack of a test."""
    with pytest.raises(ConfigError, match=words):
        checks(source)


def test_what_cannot_be_tested_apart_from_the_program_is_refused():
    """An error of the data set, before anything is run."""
    test = AssertTest(source="while 1:\n    s = Stack()\n    s.push(1)\n    assert s.n == 1")

    with pytest.raises(ConfigError, match="attribute of s"):
        plan([test])


def test_names_beside_the_program_cannot_be_known_beforehand():
    """Else it could bring a function of that name."""
    (check,) = checks("import pytest\nwith pytest.raises(ValueError):\n    f(1)")
    names = [
        {node.name for node in ast.walk(ast.parse(question_of(check).setup))
         if isinstance(node, ast.FunctionDef)}
        for _ in range(2)
    ]  # fmt: skip

    assert names[0].isdisjoint(names[1])
