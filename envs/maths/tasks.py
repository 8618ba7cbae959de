"""Problems by level; what the answer is made of never stands in the question as it is."""

import re
from collections.abc import Callable
from itertools import count
from random import Random

from agentgym.envs.levels import Problem
from agentgym.envs.maths.problems import counting, equations, ratios, stories
from agentgym.envs.maths.problems.base import Question

LEVELS: dict[int, tuple[str, tuple[Callable[[Random], Question], ...]]] = {
    1: ("arithmetic in words", stories.KINDS),
    2: ("fractions", ratios.FRACTIONS),
    3: ("percentages", ratios.PERCENTAGES),
    4: ("linear equations", equations.LINEAR),
    5: ("counting", counting.KINDS),
    6: ("quadratic equations and systems", equations.HARDER),
}
_NUMBER = re.compile(r"\d+(?:/\d+)?")


def draw(level: int, rng: Random) -> Problem:
    """A problem whose answer cannot be copied from the question."""
    kinds = LEVELS[level][1]
    for _ in count():
        text, answer, identity = rng.choice(kinds)(rng)
        if answer.lstrip("-") not in _NUMBER.findall(text):
            data = {"question": text, "answer": answer, "exact": True}
            return Problem(identity, data)
    raise AssertionError("unreachable")
