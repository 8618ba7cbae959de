"""Tests of what classes do to each other: the program is asked, and no plain data is given away."""

import pytest

from agentgym.envs.code.grading.asserts import rewrite
from agentgym.envs.code.grading.judging import answers_of, judge_here
from agentgym.envs.code.grading.planning import plan, question_of
from agentgym.envs.code.grading.tests import AssertTest

RIGHT = """
class Pair:
    def __init__(self, x, y):
        self.x, self.y = x, y
    def __add__(self, other):
        return Pair(self.x + other.x, self.y + other.y)
    def __mul__(self, other):
        return self.x * other.x + self.y * other.y
    def __eq__(self, other):
        return (self.x, self.y) == (other.x, other.y)
    def __lt__(self, other):
        return self.x < other.x
    def __hash__(self):
        return hash((self.x, self.y))
    def __abs__(self):
        return abs(self.x) + abs(self.y)
    def __neg__(self):
        return Pair(-self.x, -self.y)

def make(x):
    return Pair(x, 0)
"""
WRONG = """
from itertools import count

class Pair:
    numbers = count()
    def __init__(self, x, y):
        self.x, self.y = x, y
    def __add__(self, other):
        return Pair(other.x, other.y)
    def __mul__(self, other):
        return self.x
    def __eq__(self, other):
        return self is other
    def __lt__(self, other):
        return self.x > other.x
    def __hash__(self):
        return next(self.numbers)
    def __abs__(self):
        return 0
    def __neg__(self):
        return self

def make(x):
    return (x, 1)
"""
TRUSTED = [
    "assert Pair(1, 2) + Pair(3, 4) == Pair(4, 6)",
    "assert Pair(1, 2) == Pair(1, 2)",
    "assert not Pair(1, 2) != Pair(1, 2)",
    "assert make(1) == Pair(1, 0)",
    "assert Pair(1, 9) < Pair(2, 0)",
    "assert isinstance(make(1), Pair)",
    "a = Pair(1, 2)\nb = Pair(1, 2)\nassert a == b\nassert a is not b",
    "a, b = Pair(1, 2), Pair(3, 4)\nc = a + b\nassert c == Pair(4, 6)",
]
PLAIN = [
    "assert (Pair(1, 2) + Pair(3, 4)).x == 4",
    "c = Pair(1, 2) + Pair(3, 4)\nassert (c.x, c.y) == (4, 6)",
    "a, b = Pair(1, 2), Pair(3, 4)\nassert (a + b).x == 4",
    "assert Pair(1, 2) * Pair(3, 4) == 11",
    "assert abs(Pair(-1, 2)) == 3",
    "assert (-Pair(1, 2)).x == -1",
    "assert hash(Pair(1, 2)) == hash(Pair(1, 2))",
    "assert vars(make(1)) == {'x': 1, 'y': 0}",
]


def passes(source: str, program: str) -> bool:
    return all(_holds(check, program) for check in rewrite(AssertTest(source=source)))


def _holds(check, program: str) -> bool:
    names = {}
    case = question_of(check)
    exec(program, names)
    exec(case.setup, names)
    try:
        answers = answers_of(check, eval(case.source, names))
    except (AttributeError, TypeError):
        return False
    return answers is not None and judge_here(check, answers) is True


@pytest.mark.parametrize("source", TRUSTED + PLAIN)
def test_a_right_class_passes_and_a_wrong_one_does_not(source: str):
    """Objects never leave the process, but how they compare does."""
    assert passes(source, RIGHT)
    assert not passes(source, WRONG)


@pytest.mark.parametrize("source", TRUSTED)
def test_where_the_program_compares_its_own_objects_that_is_said(source: str):
    """A class that is equal to everything would pass."""
    assert plan([AssertTest(source=source)])[0].is_partial


@pytest.mark.parametrize(
    "source",
    [*PLAIN, "assert f(1) == g(1)", "assert abs(f(1)) == 3", "assert isinstance(f(1), int)"],
)
def test_everything_else_is_judged_outside(source: str):
    assert not plan([AssertTest(source=source)])[0].is_partial


@pytest.mark.parametrize("source", ["assert Pair(1, 2) == 98765", "assert 98765 < Pair(1, 2)"])
def test_what_is_expected_is_not_told_to_an_object(source: str):
    """Not even where the program's class would have to see it."""
    case = question_of(rewrite(AssertTest(source=source))[0])

    assert "98765" not in case.setup + case.source
