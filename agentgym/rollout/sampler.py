"""Which trajectories a window plays: a pure function of run seed and window number.

Nothing is stored and nothing depends on how many processes there are, so a resumed run asks for the
trajectories the uninterrupted one would have asked for. Groups are numbered over the whole run.
"""

import hashlib
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

from agentgym.trajectory import RolloutRequest, Task


class Tasks(Protocol):
    """What is needed of a task set."""

    @property
    def size(self) -> int | None:
        """Number of tasks; `None` = procedural, any index is a task."""
        ...

    def __getitem__(self, index: int) -> Task: ...


def derive_seed(*parts: int | str) -> int:
    """[0, 2**31) equal parts give equal seeds, on every machine."""
    digest = hashlib.sha256("/".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1


@dataclass(frozen=True)
class Sampler:
    """Requests of a training run."""

    env: str
    """Registered id, as it will stand in the trajectories."""
    tasks: Tasks
    seed: int
    """Of the run."""
    group_size: int
    shuffle: bool = True
    """Finite task sets only: a new order in every pass."""

    def groups(self, numbers: Sequence[int]) -> list[RolloutRequest]:
        """Requests of the groups with these numbers, group after group."""
        return [request for number in numbers for request in self._group(number)]

    def _group(self, number: int) -> list[RolloutRequest]:
        task = self.tasks[self._task_index(number)]
        return [
            RolloutRequest(
                request_id=f"g{number}-m{member}",
                group_id=f"g{number}",
                env=self.env,
                task=task,
                seed=derive_seed(self.seed, "env", number),
                sampling_seed=derive_seed(self.seed, "sampling", number, member),
            )
            for member in range(self.group_size)
        ]

    def _task_index(self, number: int) -> int:
        size = self.tasks.size
        if size is None:
            return number
        epoch, position = divmod(number, size)
        if not self.shuffle:
            return position
        return _order(size, derive_seed(self.seed, "order", epoch))[position]


@lru_cache(maxsize=2)
def _order(size: int, seed: int) -> list[int]:
    order = list(range(size))
    random.Random(seed).shuffle(order)
    return order


def held_out(
    env: str, tasks: Tasks, *, num_tasks: int, group_size: int, seed: int
) -> list[RolloutRequest]:
    """Requests of an evaluation: the first tasks, the same ones and seeds whenever it is called."""
    count = num_tasks if tasks.size is None else min(num_tasks, tasks.size)
    return [
        RolloutRequest(
            request_id=f"e{index}-m{member}",
            group_id=f"e{index}",
            env=env,
            task=tasks[index],
            seed=derive_seed(seed, "eval env", index),
            sampling_seed=derive_seed(seed, "eval sampling", index, member),
        )
        for index in range(count)
        for member in range(group_size)
    ]
