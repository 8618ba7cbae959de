"""More of what the policy half masters: parts of a mixture, drawn by measured success.

A group whose members all fail or all succeed has no gradient. A reward of success rate p has the
variance p (1 - p), so a part is drawn in proportion to it, never below a floor, and parts that were
not tried yet count as half mastered. What is drawn follows from run seed, group number and the
rates alone, so a run resumed with its rates goes on as it would have.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from agentgym.envs.mixture.tasks import MixedTasks, part_of, pick
from agentgym.errors import ConfigError
from agentgym.rollout.sampler import Tasks, derive_seed
from agentgym.trajectory import Task

FILE = "curriculum.json"
"""In a checkpoint."""
FLOOR = 0.05
"""Least share of a part against one that is half mastered, of 1."""
MEMORY = 0.9
"""How much of the rate a new group leaves as it is."""


class Tried(NamedTuple):
    """The outcome of one trajectory."""

    group: str
    task: str
    reward: float | None


@dataclass
class Curriculum:
    """Tasks of a mixture, drawn by success.

    Args:
        tasks: of the mixture.
        seed: of the run.
    """

    tasks: MixedTasks
    seed: int
    rates: dict[str, float] = field(default_factory=dict)
    """Success in [0, 1] by part, a running mean over groups; only parts that were tried."""
    size: None = None
    """It never ends."""

    def __getitem__(self, index: int) -> Task:
        """The task of a group, at the present rates."""
        weights = self.shares()
        at = derive_seed(self.seed, "curriculum", index) / 2**31
        return self.tasks.of_part(list(weights)[pick(list(weights.values()), at)], index)

    def shares(self) -> dict[str, float]:
        """Probability of each part; they add up to 1."""
        wanted = {}
        for label, weight in self.tasks.weights.items():
            rate = self.rates.get(label, 0.5)
            wanted[label] = weight * max(4 * rate * (1 - rate), FLOOR)
        total = sum(wanted.values())
        return {label: value / total for label, value in wanted.items()}

    def observe(self, tried: Iterable[Tried]) -> None:
        """Learn from a window: all ranks' trajectories, in an order that is the same on each."""
        groups: dict[tuple[str, str], list[float]] = {}
        for group, task, reward in tried:
            if reward is not None:
                groups.setdefault((part_of(task), group), []).append(min(max(reward, 0.0), 1.0))
        for (label, _), rewards in groups.items():
            mean = sum(rewards) / len(rewards)
            old = self.rates.get(label, mean)
            self.rates[label] = MEMORY * old + (1 - MEMORY) * mean

    def figures(self) -> dict[str, float]:
        """By metric name: the success rate of each part that was tried."""
        return {f"curriculum/{label}": rate for label, rate in self.rates.items()}

    def save(self, folder: Path) -> None:
        """Write the rates into a checkpoint."""
        (folder / FILE).write_text(json.dumps(self.rates, indent=1) + "\n", encoding="utf-8")

    def load(self, folder: Path) -> None:
        """Take over the rates of a checkpoint.

        Raises:
            ConfigError: it has none, so the run would not go on as it was.
        """
        path = folder / FILE
        if not path.exists():
            raise ConfigError(
                f"{str(folder)!r} holds no {FILE}: it was made without a curriculum; resume "
                "without one, or begin a new run"
            )
        self.rates = json.loads(path.read_text(encoding="utf-8"))


def curriculum_over(tasks: Tasks, seed: int) -> Curriculum:
    """The curriculum of a mixture's tasks.

    Raises:
        ConfigError: the env is no mixture, so there is nothing to choose between.
    """
    if not isinstance(tasks, MixedTasks):
        raise ConfigError(
            "a curriculum needs parts to choose from: give --env mixture, with one part per level "
            'in --env-args: {"parts": {"easy": {"env": "calculator", "args": {"levels": [1]}}}}'
        )
    return Curriculum(tasks, seed)
