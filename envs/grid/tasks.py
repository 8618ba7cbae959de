"""Maps by index, each with a way to the goal that is neither trivial nor too long."""

from itertools import count
from random import Random
from typing import NamedTuple

from agentgym.envs.grid.maps import draw_map, shortest_path
from agentgym.envs.levels import Problem


class Level(NamedTuple):
    """How large the map is and how far the goal."""

    size: int
    """Rows, and columns."""
    shortest: int
    """Moves that the way to the goal takes at least."""
    longest: int
    """Moves that it takes at most."""
    moves: int
    """Messages the policy has."""


LEVELS = {
    1: Level(size=3, shortest=2, longest=4, moves=5),
    2: Level(size=4, shortest=3, longest=6, moves=8),
    3: Level(size=5, shortest=4, longest=8, moves=10),
}


def draw(level: int, rng: Random) -> Problem:
    """A solvable map; the map with its start is its identity."""
    size, shortest, longest, moves = LEVELS[level]
    for _ in count():
        rows, start = draw_map(size, rng)
        path = shortest_path(rows, start)
        if path is not None and shortest <= len(path) <= longest:
            return Problem(f"{rows}{start}", {"rows": rows, "start": list(start), "moves": moves})
    raise AssertionError("unreachable")
