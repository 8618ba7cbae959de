"""Hidden numbers by index: a range that is told, and a number in it that is not."""

from random import Random
from typing import NamedTuple

from agentgym.envs.levels import Problem


class Level(NamedTuple):
    """How hard the game is."""

    size: int
    """Numbers in the range."""
    par: int
    """Guesses that halving the range never needs more than."""
    tries: int
    """Messages the policy has."""
    largest_low: int
    """The range begins between 10 and this."""


LEVELS = {
    1: Level(size=20, par=5, tries=7, largest_low=80),
    2: Level(size=100, par=7, tries=9, largest_low=900),
    3: Level(size=500, par=9, tries=10, largest_low=9500),
}


def draw(level: int, rng: Random) -> Problem:
    """A game of a level; the range and the number together are its identity."""
    size, par, tries, largest_low = LEVELS[level]
    low = rng.randint(10, largest_low)
    high = low + size - 1
    secret = rng.randint(low, high)
    data = {"low": low, "high": high, "secret": secret, "par": par, "tries": tries}
    return Problem(f"{low}-{high}/{secret}", data)
