"""Arithmetic tasks by index: the same (split, index, levels) is the same task everywhere.

The splits cannot overlap: the formula of a problem, whatever its wording, is hashed, and the hash
says which split it belongs to. A problem that falls into the other split is drawn again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import count
from random import Random
from typing import Literal, get_args
from zlib import crc32

from agentgym.envs.calculator.arithmetic import (
    Expression,
    Operation,
    evaluate,
    to_decimal,
    to_steps,
    to_text,
)
from agentgym.envs.calculator.chains import make_chain
from agentgym.envs.calculator.wording import ask
from agentgym.trajectory import Task

Split = Literal["train", "eval"]
SPLITS: tuple[Split, ...] = get_args(Split)
LEVELS: dict[int, str] = {
    1: "one operation",
    2: "two operations in a chain",
    3: "three operations in a chain",
    4: "three operations, brackets and precedence",
    5: "three operations on decimal numbers, with division",
}
_EVAL_SHARE = 5
"""One formula in this many is held out."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A formula and one way to ask for its value."""

    question: str
    expression: Expression


def make_task(index: int, *, split: Split, levels: Sequence[int]) -> Task:
    """Task number `index`; the levels take turns."""
    level = levels[index % len(levels)]
    for attempt in count():
        problem = _make_problem(level, Random(f"{split}/{level}/{index}/{attempt}"))
        if split_of(to_text(problem.expression)) == split:
            return _to_task(problem, f"{split}-{level}-{index}", level)
    raise AssertionError("unreachable")


def split_of(formula: str) -> Split:
    """The split a formula belongs to."""
    return "eval" if crc32(formula.encode()) % _EVAL_SHARE == 0 else "train"


def _make_problem(level: int, rng: Random) -> Problem:
    if level <= 3:
        chain = make_chain(level, rng)
        return Problem(ask(chain, rng), chain.expression)
    expression = _make_tree(3, decimals=level == 5, rng=rng)
    return Problem(f"What is {to_text(expression)}?", expression)


def _make_tree(num_operations: int, *, decimals: bool, rng: Random) -> Expression:
    """A random tree; division only by numbers that keep the decimals finite."""
    if num_operations == 0:
        return Fraction(rng.randint(2, 199), 10) if decimals else Fraction(rng.randint(2, 20))
    if decimals and rng.random() < 0.25:
        divisor = Fraction(rng.choice((2, 4, 5, 8)))
        return Operation("/", _make_tree(num_operations - 1, decimals=True, rng=rng), divisor)
    on_the_left = rng.randrange(num_operations)
    left = _make_tree(on_the_left, decimals=decimals, rng=rng)
    right = _make_tree(num_operations - 1 - on_the_left, decimals=decimals, rng=rng)
    return Operation(rng.choice(("+", "-", "*")), left, right)


def _to_task(problem: Problem, task_id: str, level: int) -> Task:
    return Task(
        id=task_id,
        data={
            "level": level,
            "question": problem.question,
            "steps": list(to_steps(problem.expression)),
            "answer": to_decimal(evaluate(problem.expression)),
        },
    )
