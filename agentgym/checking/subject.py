"""What is checked: how to build it here and in a fresh process, and what is being done to it.

The last is what a check that hangs is told by: whatever calls the env says so first.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from agentgym.checking.policies import ORACLE, Policy, has_oracle
from agentgym.envs import Env, Task, TaskSet, make
from agentgym.errors import EnvError, EpisodeError, UsageError, boundary

EXITS = (SystemExit, KeyboardInterrupt, asyncio.CancelledError)
"""What an env may raise without ending the checker; nobody else cancels a check."""
_BUILDING = "building the env"
SPLITS = ("train", "eval")


class Origin(BaseModel):
    """How another process finds the env."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str | None = None
    """Registered, once `plugins` are imported."""
    module: str = ""
    """Else of a class."""
    qualname: str = ""
    file: Path | None = None
    """Of the module, in case it cannot be imported by name."""
    env_args: dict[str, Any] = {}
    plugins: tuple[Path, ...] = ()


@dataclass
class Subject:
    """An env under check."""

    name: str
    """In the report; the registered name, if there is one."""
    build: Callable[[], Env]
    origin: Origin | None
    """`None` if no other process could build it."""
    is_registered: bool
    env_args: dict[str, Any]
    num_tasks: int
    """Tasks that are played."""
    seed: int
    timeout_s: float
    """Of one check."""
    slow_s: float = 1.0
    """A reset or step that takes longer is warned of."""
    doing: str = ""
    """What the env is being asked for."""
    since: float = field(default_factory=time.monotonic)
    """When that began."""
    refused: UsageError | None = None
    """Why the env cannot be built as it was asked for."""
    memo: dict[str, Any] = field(default_factory=dict)
    """What one check measured and another one judges."""

    @contextmanager
    def asking(self, what: str) -> Iterator[None]:
        """Say what the env is asked for; what it raises becomes an `EnvError` that names it."""
        self.doing, self.since = what, time.monotonic()
        try:
            with boundary(EnvError, what, also=EXITS):
                yield
        except EpisodeError as error:
            if str(error).startswith(what):
                raise
            raise EnvError(f"{what}: {error}") from error
        self.doing, self.since = f"after {what}", time.monotonic()

    def make(self) -> Env:
        """A new env.

        Raises:
            EnvError: it cannot be built.
        """
        with self.asking(_BUILDING):
            return self.build()

    def discard(self, env: Env) -> None:
        """Close an env that was not reset."""
        with self.asking("close before reset, which must be possible too"):
            env.close()

    def task_set(self, split: str) -> TaskSet:
        """The tasks of a split, from a new env."""
        env = self.make()
        with self.asking(f"tasks({split!r})"):
            tasks = env.tasks(split)
        self.discard(env)
        if not isinstance(tasks, TaskSet):
            kind = type(tasks).__name__
            raise EnvError(f"tasks({split!r}) returned a {kind}: return a TaskSet")
        return tasks

    def first_tasks(self, split: str, count: int) -> list[Task]:
        """At most `count` tasks, by index."""
        tasks = self.task_set(split)
        with self.asking(f"tasks({split!r})[0], ..."):
            size = count if tasks.size is None else min(count, tasks.size)
            return [tasks[index] for index in range(size)]

    @property
    def is_being_built(self) -> bool:
        """Whether that is what it was asked last."""
        return self.doing == _BUILDING

    @cached_property
    def oracle(self) -> tuple[Policy, ...]:
        """The env's own perfect policy; none if it has none."""
        env = self.make()
        self.discard(env)
        return (ORACLE,) if has_oracle(env) else ()

    @cached_property
    def tasks(self) -> list[Task]:
        """Those that are played: of training, and held-out ones."""
        train = self.first_tasks("train", self.num_tasks - self.num_tasks // 2)
        return train + self.first_tasks("eval", self.num_tasks // 2)


def innermost(env: Env) -> Env:
    """The env inside all wrappers."""
    inner = env.unwrapped
    assert isinstance(inner, Env)
    return inner


def build_registered(name: str, env_args: dict[str, Any]) -> Callable[[], Env]:
    """What builds the env of a registered name."""
    return lambda: make(name, **env_args)
