"""The bundled problems by level, and tasks made of them without end.

A task's data hold everything: what is asked, the tests as `grading` reads them, and a solution.
Constants, names and inputs are drawn by the task's index; a hash of problem and constants says
which split they belong to, so that nothing is trained on that is evaluated.
"""

from collections.abc import Iterable, Sequence
from functools import cache
from random import Random
from typing import Any

from agentgym.envs.code.bank import (
    grids,
    ledgers,
    lines,
    loops,
    objects,
    optima,
    parsing,
    plans,
    programs,
)
from agentgym.envs.code.bank.base import NUM_PUBLIC, Kind, Sketch, Variant, vary
from agentgym.envs.code.challenge import USE_OBJECT
from agentgym.envs.code.formats import CodeProblem
from agentgym.envs.levels import SPLITS, Problem, split_of
from agentgym.envs.taskset import TaskSet
from agentgym.errors import ConfigError
from agentgym.trajectory import Task

LEVELS = {
    1: "functions of one line",
    2: "a loop or a few conditions; short programs",
    3: "text and numbers to be read, grouped and written",
    4: "classes that keep something between calls",
    5: "problems that need an idea",
}
HARNESS = f"""

def {USE_OBJECT}(make, arguments, calls):
    made = globals()[make](*arguments)
    return [getattr(made, method)(*rest) for method, *rest in calls]
"""
"""Put behind a class, so that it can be tested with JSON values alone."""
_MODULES = (lines, loops, parsing, programs, objects, ledgers, grids, optima, plans)


def checked(sketches: Iterable[Sketch]) -> tuple[Sketch, ...]:
    """Sketches that can make up a bank.

    Raises:
        ConfigError: two share a name, a level does not exist, or texts are missing.
    """
    seen: set[str] = set()
    kept = tuple(sketches)
    for sketch in kept:
        where = f"problem {sketch.name!r}"
        if sketch.name in seen:
            raise ConfigError(f"{where} comes twice: rename one")
        if sketch.level not in LEVELS:
            raise ConfigError(f"{where}: level {sketch.level} is none of {sorted(LEVELS)}")
        if not sketch.statement.strip() or sketch.solution == sketch.wrong:
            raise ConfigError(f"{where} needs a statement, and a wrong solution of its own")
        seen.add(sketch.name)
    return kept


@cache
def bank() -> tuple[Sketch, ...]:
    """Every bundled problem."""
    return checked(sketch for module in _MODULES for sketch in module.SKETCHES)


@cache
def of_level(level: int) -> tuple[Sketch, ...]:
    """The bundled problems of a level."""
    return tuple(sketch for sketch in bank() if sketch.level == level)


def draw(level: int, rng: Random) -> Problem:
    """A problem of a level, by `levels.Draw`."""
    variant = vary(rng.choice(of_level(level)), rng)
    return Problem(variant.identity, data_of(variant))


def data_of(variant: Variant) -> dict[str, Any]:
    """A task's data: JSON values."""
    kind, entry = variant.sketch.kind, variant.entry
    tests = [
        test_of(kind, entry, given, expected)
        for given, expected in zip(variant.inputs, variant.expected, strict=True)
    ]
    return {
        "problem": variant.sketch.name,
        "kind": kind,
        "entry": entry,
        "statement": variant.statement,
        "public_tests": tests[:NUM_PUBLIC],
        "hidden_tests": tests[NUM_PUBLIC:],
        "harness": HARNESS if kind == "class" else "",
        "solution": variant.solution,
    }


def test_of(kind: Kind, entry: str, given: Any, expected: Any) -> dict[str, Any]:
    """One test in the JSON form of `grading.tests`."""
    if kind == "program":
        return {"kind": "stdio", "stdin": given, "expected": expected}
    if kind == "function":
        return {"kind": "call", "function": entry, "args": given, "expected": expected}
    args = [entry, *given]
    return {"kind": "call", "function": USE_OBJECT, "args": args, "expected": expected}


def problems_of_split(problems: Sequence[CodeProblem], split: str) -> TaskSet:
    """One problem in five is held out, by a hash of its statement.

    Raises:
        ConfigError: the split is neither "train" nor "eval".
    """
    if split not in SPLITS:
        raise ConfigError(f"split must be one of {list(SPLITS)}, got {split!r}")
    chosen = [problem for problem in problems if split_of(problem.statement) == split]
    return TaskSet(lambda i: Task(id=chosen[i].id, data=chosen[i].task_data()), len(chosen))
