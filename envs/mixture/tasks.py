"""Tasks of several envs as one set: which one an index belongs to follows from the weights alone.

The parts take turns in a pattern that is as even as whole tasks allow, so any stretch of indices
has every part in its share, and each part's own tasks come in order without a gap.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import accumulate
from random import Random

from agentgym.envs.taskset import TaskSet
from agentgym.errors import ConfigError
from agentgym.trajectory import Task

PERIOD = 1000
"""Tasks after which the pattern repeats; a weight below 1 / PERIOD of the whole gets no task."""


class MixedTasks(TaskSet):
    """Tasks of every part; a part with an end begins anew, in another order.

    Args:
        parts: task sets by label.
        weights: relative share by label.
        once: end before a task comes twice.

    Raises:
        ConfigError: a part has no tasks, or too small a share to get one.
    """

    def __init__(
        self, parts: Mapping[str, TaskSet], weights: Mapping[str, float], *, once: bool = False
    ) -> None:
        empty = [label for label, tasks in parts.items() if not tasks]
        if empty:
            raise ConfigError(f"part {empty[0]!r} of the mixture has no tasks")
        super().__init__(self._task_at, None)
        self.parts = dict(parts)
        self.weights = {label: weights[label] for label in parts}
        missing = sorted(self.weights.keys() - set(self._pattern))
        if missing:
            raise ConfigError(
                f"part {missing[0]!r} has weight {weights[missing[0]]:g}, less than 1/{PERIOD} of "
                "the whole: it would get no task"
            )
        if once:
            ends = [self._end_of(label) for label, tasks in parts.items() if tasks.size is not None]
            self.size = min(ends, default=None)

    def of_part(self, label: str, index: int) -> Task:
        """The task `index` of a part, as a task of the mixture."""
        tasks, again = self.parts[label], 0
        if tasks.size is not None:
            again, place = divmod(index, tasks.size)
            index = _order(tasks.size, f"{label}/{again}")[place]
        task = tasks[index]
        name = f"{label}/{task.id}#{again}" if again else f"{label}/{task.id}"
        return Task(id=name, data={"part": label, "task": task.model_dump()})

    def _task_at(self, index: int) -> Task:
        period, position = divmod(index, len(self._pattern))
        label = self._pattern[position]
        return self.of_part(label, period * self._counts[label] + self._ranks[position])

    def _end_of(self, label: str) -> int:
        """Index at which the first task of a finite part would come again."""
        size = self.parts[label].size
        assert size is not None
        periods, rest = divmod(size, self._counts[label])
        places = [place for place, name in enumerate(self._pattern) if name == label]
        return periods * len(self._pattern) + places[rest]

    @cached_property
    def _pattern(self) -> list[str]:
        """[PERIOD] labels, or one round where all weights are equal."""
        if len(set(self.weights.values())) == 1:
            return list(self.weights)
        return _even(self.weights, PERIOD)

    @cached_property
    def _counts(self) -> dict[str, int]:
        return {label: self._pattern.count(label) for label in self.weights}

    @cached_property
    def _ranks(self) -> list[int]:
        """How often the label at a position came before it in the pattern."""
        seen = dict.fromkeys(self.weights, -1)
        ranks = []
        for label in self._pattern:
            seen[label] += 1
            ranks.append(seen[label])
        return ranks


def part_of(task_id: str) -> str:
    """The label in the id of a mixture's task."""
    return task_id.partition("/")[0]


@lru_cache(maxsize=64)
def _order(size: int, seed: str) -> list[int]:
    order = list(range(size))
    Random(seed).shuffle(order)
    return order


def _even(weights: Mapping[str, float], length: int) -> list[str]:
    """Labels such that after n of them each has come its share of n times, give or take one."""
    total = sum(weights.values())
    shares = {label: weight / total for label, weight in weights.items()}
    given = dict.fromkeys(weights, 0)
    pattern = []
    for place in range(1, length + 1):
        label = max(shares, key=lambda name: shares[name] * place - given[name])
        given[label] += 1
        pattern.append(label)
    return pattern


def pick(weights: Sequence[float], at: float) -> int:
    """The index in which the point `at` of [0, 1) falls, each as wide as its weight."""
    borders = list(accumulate(weights))
    return next(i for i, border in enumerate(borders) if at * borders[-1] < border)
