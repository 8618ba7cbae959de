"""A plugin: an env whose first turns must have a form, and a referee that wants one of the last."""

from typing import Any

from agentgym.envs import Task, TaskSet, TextEnv, register
from agentgym.envs.base import Info, ResetResult, StepResult
from agentgym.envs.text_env import TextStep
from agentgym.registry import SCHEDULERS
from agentgym.rollout import GymScheduler, NextTurn, Trajectory
from agentgym.trajectory import Turn

MARK = "[0-9]{2}"
VERDICT = {
    "type": "object",
    "properties": {"fine": {"type": "boolean"}},
    "required": ["fine"],
    "additionalProperties": False,
}
FORMS: list[dict[str, Any] | None] = [{"regex": MARK}, {"json_schema": VERDICT}, None]
"""Of the three turns."""


class Forms(TextEnv):
    """Wants a mark, a verdict in JSON, and any last words; pays for the mark.

    Args:
        first: constraint of the first turn, in place of a mark's.
    """

    def __init__(self, first: dict[str, Any] | None = None) -> None:
        self._forms = [first or FORMS[0], *FORMS[1:]]

    def tasks(self, split: str = "train") -> TaskSet:
        return TaskSet.from_rows([{"id": f"{split}-{number}"} for number in range(8)])

    def start(self, task: Task) -> str:
        self._num_turns = 0
        return "Your mark?"

    def respond(self, text: str) -> TextStep:
        self._num_turns += 1
        reward = sum(map(ord, text)) % 10 / 10
        return TextStep("And now?", reward, self._num_turns == len(FORMS))

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> ResetResult:
        observation, info = super().reset(seed=seed, options=options)
        return observation, info | {"constraint": self._forms[0]}

    def step(self, action: Any) -> StepResult:
        *result, info = super().step(action)
        wanted = self._forms[self._num_turns] if self._num_turns < len(FORMS) else None
        return (*result, info | {"constraint": wanted})


class Strict(GymScheduler):
    """Leaves no turn free: the last words are yes or no."""

    async def step(self, trajectory: Trajectory, turn: Turn) -> NextTurn:
        following = await super().step(trajectory, turn)
        wanted = {"regex": "yes|no"} if turn.index == 1 else None
        return NextTurn(messages=following.messages, constraint=wanted)


register("Forms-v0", Forms)
SCHEDULERS.register("strict", Strict)
