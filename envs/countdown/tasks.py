"""Numbers and a target by index; the target comes from a random way to combine the numbers."""

from fractions import Fraction
from itertools import count
from random import Random
from typing import NamedTuple

from agentgym.envs.calculator.arithmetic import (
    OPERATORS,
    Expression,
    Operation,
    apply,
    evaluate,
    to_text,
)
from agentgym.envs.levels import Problem


class Level(NamedTuple):
    """How many numbers there are, and how large."""

    num_numbers: int
    largest: int
    """The numbers go from 1 to this."""
    targets: tuple[int, int]
    """Smallest and largest target."""


LEVELS = {
    1: Level(num_numbers=3, largest=20, targets=(5, 99)),
    2: Level(num_numbers=4, largest=25, targets=(10, 199)),
    3: Level(num_numbers=5, largest=50, targets=(50, 499)),
    4: Level(num_numbers=6, largest=100, targets=(100, 999)),
}


def draw(level: int, rng: Random) -> Problem:
    """A game that has a solution; numbers and target are its identity."""
    num_numbers, largest, (lowest, highest) = LEVELS[level]
    for _ in count():
        numbers = [rng.randint(1, largest) for _ in range(num_numbers)]
        solution = _combine([Fraction(number) for number in numbers], rng)
        target = int(evaluate(solution))
        if lowest <= target <= highest and target not in numbers:
            shown = rng.sample(numbers, num_numbers)
            data = {"numbers": shown, "target": target, "solution": to_text(solution)}
            return Problem(f"{sorted(numbers)}/{target}", data)
    raise AssertionError("unreachable")


def _combine(numbers: list[Fraction], rng: Random) -> Expression:
    """All numbers in one expression, each value on the way whole and positive."""
    parts: list[Expression] = list(numbers)
    while len(parts) > 1:
        rng.shuffle(parts)
        left, right = sorted((parts.pop(), parts.pop()), key=evaluate, reverse=True)
        values = evaluate(left), evaluate(right)
        usable = [o for o in OPERATORS if o != "/" or values[0] % values[1] == 0]
        usable = [o for o in usable if apply(o, *values) > 0]
        parts.append(Operation(rng.choice(usable), left, right))
    return parts[0]
