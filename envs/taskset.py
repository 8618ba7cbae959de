"""Where tasks come from: a finite list, a data set, or a function of the index."""

import itertools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, SupportsIndex

import numpy as np

from agentgym.trajectory import Task

_PROCEDURAL_DRAWS = 2**31


class TaskSet:
    """Tasks by index, each built when it is asked for; the same index gives the same task.

    Args:
        make: builds the task of an index.
        size: number of tasks; `None` for a procedural set, which has one for every index.
    """

    def __init__(self, make: Callable[[int], Task], size: int | None) -> None:
        self._make = make
        self.size = size

    @classmethod
    def procedural(cls, make: Callable[[int], Task]) -> "TaskSet":
        """Endless tasks: `make` must give different ids for different indices."""
        return cls(make, None)

    @classmethod
    def from_rows(cls, rows: Sequence[Mapping[str, Any]]) -> "TaskSet":
        """One task per row, such as of a `datasets.Dataset`; its id is the row's `id` or index."""

        def make(index: int) -> Task:
            data = dict(rows[index])
            return Task(id=str(data.get("id", index)), data=data)

        return cls(make, len(rows))

    def __getitem__(self, index: SupportsIndex) -> Task:
        """The task of an index; a finite set counts negative ones from the end.

        Raises:
            IndexError: there is none.
        """
        position = operator.index(index)
        if self.size is not None and -self.size <= position < 0:
            position += self.size
        if position < 0 or (self.size is not None and position >= self.size):
            raise IndexError(f"task {operator.index(index)} of {self.size or 'a procedural set'}")
        return self._make(position)

    def __len__(self) -> int:
        """Number of tasks.

        Raises:
            TypeError: the set is procedural.
        """
        if self.size is None:
            raise TypeError("a procedural task set has no length; its .size is None")
        return self.size

    def __bool__(self) -> bool:
        return self.size != 0

    def __iter__(self) -> Iterator[Task]:
        """Tasks by ascending index; without end if the set is procedural."""
        indices = itertools.count() if self.size is None else range(self.size)
        return map(self._make, indices)

    def draw(self, rng: np.random.Generator) -> Task:
        """A random task."""
        return self[int(rng.integers(_PROCEDURAL_DRAWS if self.size is None else self.size))]

    def __repr__(self) -> str:
        return f"TaskSet({'procedural' if self.size is None else f'{self.size} tasks'})"
