"""What is played: where envs, tasks and reward weights come from."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from agentgym import envs
from agentgym.envs.base import Env
from agentgym.envs.taskset import TaskSet
from agentgym.errors import ConfigError, boundary
from agentgym.rollout.sampler import Tasks
from agentgym.tools.sandbox.base import SandboxSpec

MakeEnv = Callable[[], Env]


@dataclass(frozen=True, kw_only=True)
class Game:
    """An env as training sees it."""

    name: str
    """As it stands in the trajectories."""
    make_env: MakeEnv
    reward_weights: dict[str, float]
    """The env's own, by name."""
    split: Callable[[str], Tasks]
    """Tasks of a split, `train` or `eval`; the env's are asked for only when they are needed."""
    sandboxes: tuple[SandboxSpec, ...] = ()
    """What its episodes may open."""

    @cached_property
    def train(self) -> Tasks:
        """Tasks to train on.

        Raises:
            ConfigError: there are none.
        """
        return self._tasks("train")

    def held_out(self) -> Tasks:
        """Tasks for evaluation.

        Raises:
            ConfigError: there are none.
        """
        return self._tasks("eval")

    def _tasks(self, split: str) -> Tasks:
        tasks = self.split(split)
        if tasks.size == 0:
            raise ConfigError(f"env {self.name!r} has no tasks in split {split!r}")
        return tasks


Rows = Sequence[Mapping[str, Any]]
"""A `datasets.Dataset`, or a list of mappings."""


def game_of(
    env: str | MakeEnv,
    env_kwargs: Mapping[str, Any] | None = None,
    *,
    train_rows: Rows | None = None,
    eval_rows: Rows | None = None,
) -> Game:
    """The game of a registered env or of a factory; rows replace the env's own tasks.

    Raises:
        NotRegisteredError: no such env.
        ConfigError: there are no train rows, a factory was given arguments, or the env cannot be
            built.
    """
    if train_rows is not None and not len(train_rows):
        raise ConfigError("train_dataset is empty: no tasks in split 'train'; give it rows")
    make_env = _factory(env, dict(env_kwargs or {}))
    name = env if isinstance(env, str) else _name(env)
    with boundary(ConfigError, f"env {name!r} cannot be built"):
        probe = make_env()
        weights = dict(probe.reward_weights)
        sandboxes = _sandboxes(probe)
        probe.close()
    rows = {"train": train_rows, "eval": eval_rows}

    def split(which: str) -> Tasks:
        given = rows[which]
        return TaskSet.from_rows(given) if given is not None else _own_tasks(name, make_env, which)

    return Game(
        name=name, make_env=make_env, reward_weights=weights, split=split, sandboxes=sandboxes
    )


def _sandboxes(env: Any) -> tuple[SandboxSpec, ...]:
    """Of an env, whatever is wrapped around it."""
    inner = env.unwrapped
    return tuple(inner.sandbox_specs()) if isinstance(inner, Env) else ()


def _own_tasks(name: str, make_env: MakeEnv, split: str) -> Tasks:
    with boundary(ConfigError, f"env {name!r}: tasks of split {split!r}"):
        probe = make_env()
        try:
            tasks: Tasks = probe.tasks(split)
            return tasks
        finally:
            probe.close()


def _factory(env: str | MakeEnv, kwargs: dict[str, Any]) -> MakeEnv:
    if isinstance(env, str):
        name = env
        return lambda: envs.make(name, **kwargs)
    if kwargs:
        raise ConfigError("env_kwargs go to a registered env; a factory has its own arguments")
    return env


def _name(factory: object) -> str:
    return factory.__name__ if isinstance(factory, type) else type(factory).__name__


def weights_by_name(
    own: Mapping[str, float], functions: Sequence[str], given: Mapping[str, float] | None
) -> dict[str, float]:
    """Weight of every reward: what was given, else the env's own, else 1.

    Args:
        own: the env's weights.
        functions: names of the reward functions.
        given: the user's weights.

    Raises:
        ConfigError: two functions have one name, a weight is for no reward that is known, or it
            is no finite number.
    """
    known = [*own, *functions]
    twice = sorted({name for name in known if known.count(name) > 1})
    if twice:
        raise ConfigError(f"two rewards are called {twice[0]!r}: give one function another name")
    unknown = sorted((given or {}).keys() - set(known))
    if unknown and own:
        raise ConfigError(
            f"reward_weights names {unknown[0]!r}, but the rewards are {', '.join(known)}"
        )
    weights = {**own, **dict.fromkeys(functions, 1.0), **(given or {})}
    refuse_bad_weights(weights)
    return weights


def refuse_bad_weights(weights: object) -> None:
    """Raise a `ConfigError` if they are not by name, or one is no finite number."""
    if not isinstance(weights, Mapping):
        raise ConfigError(f"reward_weights={weights!r}: give them by name: {{'correct': 1.0}}")
    for name, weight in weights.items():
        is_number = isinstance(weight, int | float) and not isinstance(weight, bool)
        if not is_number or not math.isfinite(weight):
            raise ConfigError(f"reward_weights: {name}={weight!r} must be a finite number")
