"""Envs that only talk: text in, text out, over several turns."""

from typing import Any, NamedTuple

from agentgym.envs.base import Env, Info, ResetResult, StepResult
from agentgym.messages import Message, user
from agentgym.trajectory import Task


class TextStep(NamedTuple):
    """What an env says to a message of the policy."""

    observation: str
    reward: float = 0.0
    terminated: bool = False


class TextEnv(Env):
    """Define `start` and `respond`; keep the state of the episode on `self`."""

    def start(self, task: Task) -> str:
        """Begin an episode and say its first text; randomness from `self.np_random`."""
        raise NotImplementedError(f"{type(self).__name__} must define start(task)")

    def respond(self, text: str) -> TextStep:
        """Answer what the policy said."""
        raise NotImplementedError(f"{type(self).__name__} must define respond(text)")

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> ResetResult:
        """Begin an episode of a task."""
        task = self.pick_task(options)
        return [user(self.start(task))], {"task_id": task.id}

    def step(self, action: Any) -> StepResult:
        """Pass on what the policy said, and what it gets to hear."""
        assert isinstance(action, Message)
        observation, reward, terminated = self.respond(action.content)
        return [user(observation)], reward, terminated, False, {}
