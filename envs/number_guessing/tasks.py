"""Hidden numbers by index: a range that is told, and a number in it that is not."""

from random import Random
from typing import NamedTuple

from agentgym.envs.levels import Problem


class Level(NamedTuple):
    """How hard the game is."""

    lows: tuple[int, int]
    """The range begins between these."""
    highs: tuple[int, int]
    """It ends between these."""
    tries: int
    """Messages the policy has."""


LEVELS = {
    1: Level(lows=(1, 10), highs=(90, 99), tries=9),
    2: Level(lows=(1, 100), highs=(400, 499), tries=10),
    3: Level(lows=(1, 100), highs=(900, 999), tries=10),
}


def draw(level: int, rng: Random) -> Problem:
    """A game of a level; the range and the number together are its identity."""
    lows, highs, tries = LEVELS[level]
    low, high = rng.randint(*lows), rng.randint(*highs)
    secret = rng.randint(low, high)
    par = (high - low + 1).bit_length()  # guesses that halving the range needs at worst
    data = {"low": low, "high": high, "secret": secret, "par": par, "tries": tries}
    return Problem(f"{low}-{high}/{secret}", data)
