"""The environment every task is played in: Gymnasium's API over messages, with an async side.

Authors write either side of `reset`, `step` and `close`; the loop calls the async one. A sync side
runs in a thread of the env's own, an async side serves sync callers from a background loop. The
class checks itself (see `contract`), so that no mistake of an env can reach the trainer silently.
"""

import math
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import gymnasium
from pydantic import ValidationError

from agentgym.envs.contract import (
    Contract,
    Info,
    Observation,
    Phase,
    ResetResult,
    StepResult,
)
from agentgym.envs.sides import pair_up
from agentgym.envs.spaces import MessageSpace
from agentgym.envs.taskset import TaskSet
from agentgym.errors import ConfigError
from agentgym.threads import Worker, run_coroutine
from agentgym.tools import Tool
from agentgym.tools.sandbox.base import SandboxSpec
from agentgym.tools.sandbox.lazy import NO_SANDBOX, LazySandbox
from agentgym.trajectory import Task

__all__ = ["Env", "Info", "Observation", "ResetResult", "StepResult", "TaskSet", "weighted_sum"]


class Env(gymnasium.Env[Observation, Any]):
    """Plays one episode of one task at a time.

    Define `reset` and `step`, or `areset` and `astep`; `step` always gets an assistant `Message`.
    What the loop reads of `info`: `tool_results` (list of `ToolResult`, each step), `rewards` (by
    name, `None` = unscored, on the last step), `stop_reason` (a `StopReason`), `report` (JSON
    values for the record), `constraint` (of the next turn; see `Constraint`). Randomness comes from
    `self.np_random`, which is seeded before `reset`.
    """

    metadata = {"render_modes": []}

    tools: tuple[Tool, ...] = ()
    """What the policy may call; the loop tells the model."""
    reward_weights: Mapping[str, float] = {}
    """By name of reward; 1.0 where none is given."""
    reward_range: tuple[float, float] = (0.0, 1.0)
    """Lowest and highest return of an episode; `agentgym check` holds it against what it sees."""
    max_turns: int | None = None
    """Steps after which the episode is truncated."""

    _sandbox: LazySandbox = NO_SANDBOX
    """Of the episode; closed with the env, whatever an author's own `close` does."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        pair_up(cls)
        for method in ("reset", "step"):
            if getattr(cls, method) is getattr(Env, method):
                raise TypeError(f"{cls.__name__} must define {method} or a{method}")

    @cached_property
    def action_space(self) -> MessageSpace:  # type: ignore[override]
        return MessageSpace()

    @cached_property
    def observation_space(self) -> MessageSpace:  # type: ignore[override]
        return MessageSpace()

    @cached_property
    def _contract(self) -> Contract:
        """Where this env stands, for the checks around its methods."""
        return Contract()

    @cached_property
    def _worker(self) -> Worker:
        """The thread of the sync side."""
        return Worker()

    def tasks(self, split: str = "train") -> TaskSet:
        """Tasks of a split, "train" or "eval"; by default empty ones, told apart by their index."""
        return TaskSet.procedural(lambda index: Task(id=f"{split}-{index}"))

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> ResetResult:
        """Begin an episode.

        Args:
            seed: of `np_random`, which goes on as it is if there is none.
            options: `task` to play (see `pick_task`).
        """
        return [], {}

    def step(self, action: Any) -> StepResult:
        """Play a message of the policy, an assistant `Message` or its text.

        Raises:
            gymnasium.error.ResetNeeded: there is no episode.
            EpisodeOverError: it has ended.
            EnvError: the env broke its contract; reset it.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Free what the env holds; a second call does nothing."""
        self._contract.phase = Phase.NEW
        self._worker.stop()
        self._close_sandbox()

    async def areset(self, *, seed: int | None = None, options: Info | None = None) -> ResetResult:
        """`reset` for the event loop."""
        return [], {}

    async def astep(self, action: Any) -> StepResult:
        """`step` for the event loop."""
        raise NotImplementedError

    async def aclose(self) -> None:
        """`close` for the event loop."""
        self._contract.phase = Phase.NEW
        self._worker.stop()
        await self._sandbox.aclose()

    async def acut(self) -> dict[str, float | None]:
        """End the episode where the caller's budget cut it.

        Returns:
            Its rewards by name, as far as it was played; empty if the env has none to give.
        """
        self.end_episode()
        return {}

    def pick_task(self, options: Mapping[str, Any] | None) -> Task:
        """The task of `options["task"]`, else one of `tasks("train")`, drawn with `np_random`.

        It is a copy: what an env writes into it is not seen by the others of the group.

        Raises:
            ConfigError: what was handed in is no task.
        """
        if options is None or "task" not in options:
            return self.tasks("train").draw(self.np_random)
        try:
            return Task.model_validate(options["task"]).model_copy(deep=True)
        except ValidationError as error:
            raise ConfigError(f"options['task'] is no Task: {options['task']!r}") from error

    def sandbox_specs(self) -> tuple[SandboxSpec, ...]:
        """What it may open in an episode from where this process takes sandboxes, so that a run can
        be refused before it begins."""
        return ()

    def seed_generator(self, seed: int | None) -> None:
        """Seed `np_random`, unless there is no seed."""
        gymnasium.Env.reset(self, seed=seed)

    def end_episode(self) -> bool:
        """Allow no further step; True if one was allowed."""
        if self._contract.phase is not Phase.PLAYING:
            return False
        self._contract.phase = Phase.OVER
        return True

    def _close_sandbox(self) -> None:
        if self._sandbox.needs_closing:
            run_coroutine(self._sandbox.aclose())

    @property
    def is_last_turn(self) -> bool:
        """True in the step that reaches `max_turns`."""
        return self.max_turns is not None and self._contract.turn >= self.max_turns


def weighted_sum(rewards: Mapping[str, float | None], weights: Mapping[str, float]) -> float | None:
    """Sum of weight x reward over the scored; weight 1.0 where none is given; `None` if none is."""
    scored = [
        weights.get(name, 1.0) * value for name, value in rewards.items() if value is not None
    ]
    return math.fsum(scored) if scored else None
