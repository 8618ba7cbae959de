"""Names, weighs and merges what judges a trajectory: the env's own columns and reward functions.

A missing score stays missing. A function that returns `None`, raises or runs out of time leaves its
column unscored; it never counts as 0, and it never touches another trajectory or column. A sandbox
that fails is no function's fault: its error is passed on, and the trajectory is played again.
"""

import asyncio
import inspect
import math
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from copy import deepcopy
from functools import partial
from typing import Protocol, SupportsFloat, runtime_checkable

from agentgym.deadlines import SelfCancelledError, bounded, together
from agentgym.envs.base import weighted_sum
from agentgym.errors import ConfigError, RewardError, boundary
from agentgym.threads import in_thread
from agentgym.tools.sandbox.base import SandboxSpec
from agentgym.trajectory import RolloutOutput, Task

Score = float | None
Reward = Callable[..., Score | Awaitable[Score]]
"""What a reward function is: it sees the whole trajectory, and the task if it has a parameter of
that name; `None` = unscored."""

ERRORS = "reward_errors"
"""Key of `rollout_infos`: what a function that failed said, by name."""


def merge(
    output: RolloutOutput, scores: Mapping[str, Score], weights: Mapping[str, float]
) -> RolloutOutput:
    """The trajectory with more columns, weighed anew.

    Raises:
        ConfigError: a column of that name is there already.
    """
    for name in scores.keys() & output.rewards.keys():
        raise ConfigError(
            f"reward {name!r} is both the env's and a reward function's: rename the function"
        )
    rewards = {**output.rewards, **scores}
    return output.model_copy(update={"rewards": rewards, "reward": weighted_sum(rewards, weights)})


@runtime_checkable
class OpensSandboxes(Protocol):
    """A reward function that runs code."""

    def sandbox_specs(self) -> Sequence[SandboxSpec]:
        """What it opens of the sandboxes that the process shares."""
        ...


class Rubric:
    """Reward functions by name, and the weight of every column by name.

    Functions may be sync (run in a thread, so that they cannot stall the event loop) or async; all
    of them run at once, each with a deadline.
    """

    def __init__(
        self,
        functions: Mapping[str, Reward] | None = None,
        weights: Mapping[str, float] | None = None,
        *,
        timeout_s: float = 60.0,
    ) -> None:
        self.functions = dict(functions or {})
        self.weights = dict(weights or {})
        self.timeout_s = timeout_s

    def sandbox_specs(self) -> tuple[SandboxSpec, ...]:
        """What its functions open of the sandboxes that the process shares."""
        functions: Collection[object] = self.functions.values()
        opening = [each for each in functions if isinstance(each, OpensSandboxes)]
        return tuple(spec for each in opening for spec in each.sandbox_specs())

    async def score(self, outputs: Sequence[RolloutOutput]) -> list[RolloutOutput]:
        """The trajectories with every function's column; failed ones come back as they are."""
        return list(await asyncio.gather(*map(self.score_one, outputs)))

    async def score_one(self, output: RolloutOutput, task: Task | None = None) -> RolloutOutput:
        """One trajectory with every function's column: what a `Player` takes as its `score`.

        Args:
            output: what was played.
            task: of what; without it, functions that ask for it leave their columns unscored.

        Raises:
            SandboxError: the infrastructure failed a function that runs code.
        """
        if output.stop_reason.is_failure:
            return output
        errors: dict[str, str] = {}

        async def column(name: str) -> Score:
            try:
                return await self._call(name, output, task)
            except RewardError as error:
                errors[name] = str(error)
                return None

        columns = [asyncio.create_task(column(name)) for name in self.functions]
        values = await together(columns)
        scored = merge(output, dict(zip(self.functions, values, strict=True)), self.weights)
        if not errors:
            return scored
        return scored.model_copy(update={"rollout_infos": {**scored.rollout_infos, ERRORS: errors}})

    async def _call(self, name: str, output: RolloutOutput, task: Task | None) -> Score:
        function = _with_task(self.functions[name], task)

        async def judged() -> Score:
            with boundary(RewardError, name, also=(SystemExit,)):
                return as_score(await _run(function, _for_reading(output)))

        try:
            return await bounded(judged(), self.timeout_s)
        except TimeoutError as error:
            raise RewardError(f"{name}: no answer within {self.timeout_s:g} s") from error
        except SelfCancelledError as error:
            raise RewardError(f"{name}: {error}") from error


def _for_reading(output: RolloutOutput) -> RolloutOutput:
    """With tables of its own, so that what a function writes there is lost; the rest is frozen."""
    tables = {
        "messages": deepcopy(output.messages),
        "rewards": dict(output.rewards),
        "rollout_infos": deepcopy(output.rollout_infos),
        "timings": dict(output.timings),
    }
    return output.model_copy(update=tables)


def _with_task(function: Reward, task: Task | None) -> Reward:
    """The function of a trajectory alone."""
    if not takes_task(function):
        return function
    if task is None:
        raise RewardError("it needs the task, which was not handed in")
    return partial(function, task=task.model_copy(deep=True))


def takes_task(function: Reward) -> bool:
    """Whether it has a parameter `task`."""
    try:
        return "task" in inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False


async def _run(function: Reward, output: RolloutOutput) -> object:
    if not is_async(function):
        return await in_thread(lambda: function(output))
    answer = function(output)
    assert inspect.isawaitable(answer)
    return await answer


def is_async(function: object) -> bool:
    """Whether calling it gives an awaitable; an object with an async `__call__` counts."""
    if isinstance(function, partial):
        return is_async(function.func)
    call = type(function).__call__ if callable(function) else None
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


def as_score(value: object) -> Score:
    """A reward as a plain float; `None` if it is missing or not finite.

    Raises:
        RewardError: it is no number; text that reads like one is none.
    """
    if value is None:
        return None
    if isinstance(value, str) or not isinstance(value, SupportsFloat):
        raise RewardError(f"a reward is a number or None, got {value!r}")
    number = float(value)
    return number if math.isfinite(number) else None
