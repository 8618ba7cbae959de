"""Arithmetic problems of a level; the formula, whatever its wording, is what they are."""

from fractions import Fraction
from random import Random

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
from agentgym.envs.levels import Problem

LEVELS: dict[int, str] = {
    1: "one operation",
    2: "two operations in a chain",
    3: "three operations in a chain",
    4: "three operations, brackets and precedence",
    5: "three operations on decimal numbers, with division",
}


def draw(level: int, rng: Random) -> Problem:
    """A problem of a level."""
    question, expression = _make_problem(level, rng)
    data = {
        "question": question,
        "steps": list(to_steps(expression)),
        "answer": to_decimal(evaluate(expression)),
    }
    return Problem(to_text(expression), data)


def _make_problem(level: int, rng: Random) -> tuple[str, Expression]:
    """A formula, and one way to ask for its value."""
    if level <= 3:
        chain = make_chain(level, rng)
        return ask(chain, rng), chain.expression
    expression = _make_tree(3, decimals=level == 5, rng=rng)
    return f"What is {to_text(expression)}?", expression


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
