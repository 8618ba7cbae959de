"""Endless tasks in levels, with splits that cannot overlap.

An env says how one problem of a level is drawn. What makes a problem itself, whatever its wording,
is its identity: a hash of it says which split it belongs to, and a problem that falls into the
other split is drawn again. The same (split, index, levels) is the same task everywhere.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count
from random import Random
from typing import Any, NamedTuple
from zlib import crc32

from agentgym.envs.taskset import TaskSet
from agentgym.errors import ConfigError
from agentgym.trajectory import Task

SPLITS = ("train", "eval")
_EVAL_SHARE = 5
"""One identity in this many is held out."""


class Problem(NamedTuple):
    """One problem of a level."""

    identity: str
    """Equal for problems that are the same but for their wording."""
    data: Mapping[str, Any]
    """JSON values, for `Task.data`; `level` is added."""


Draw = Callable[[int, Random], Problem]
"""Draws a problem of a level, with this generator only."""


def checked_levels(levels: Sequence[int], known: Iterable[int]) -> tuple[int, ...]:
    """The levels as they were given.

    Raises:
        ConfigError: there is none, or one that does not exist.
    """
    unknown = set(levels) - set(known)
    if unknown or not levels:
        raise ConfigError(f"levels must be some of {sorted(known)}, got {list(levels)}")
    return tuple(levels)


def leveled_tasks(draw: Draw, *, split: str, levels: Sequence[int]) -> TaskSet:
    """Problems by index; the levels take turns.

    Raises:
        ConfigError: the split is neither "train" nor "eval".
    """
    if split not in SPLITS:
        raise ConfigError(f"split must be one of {list(SPLITS)}, got {split!r}")

    def make(index: int) -> Task:
        level = levels[index % len(levels)]
        problem = _draw_of_split(draw, level, split=split, index=index)
        data = {"level": level, **problem.data}
        return Task(id=f"{split}-{level}-{index}", data=data)

    return TaskSet.procedural(make)


def split_of(identity: str) -> str:
    """The split that a problem belongs to."""
    return "eval" if crc32(identity.encode()) % _EVAL_SHARE == 0 else "train"


def _draw_of_split(draw: Draw, level: int, *, split: str, index: int) -> Problem:
    for attempt in count():
        problem = draw(level, Random(f"{split}/{level}/{index}/{attempt}"))
        if split_of(problem.identity) == split:
            return problem
    raise AssertionError("unreachable")
