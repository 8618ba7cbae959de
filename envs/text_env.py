"""Envs that only talk: text in, text out, over several turns."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from agentgym.envs.base import Env, Info, ResetResult, StepResult, weighted_sum
from agentgym.envs.contract import as_rewards
from agentgym.errors import RewardError, boundary
from agentgym.messages import Message, user
from agentgym.trajectory import Task


class TextStep(NamedTuple):
    """What an env says to a message of the policy."""

    observation: str
    reward: float = 0.0
    terminated: bool = False


class TextEnv(Env):
    """Define `start` and `respond`; keep the state of the episode on `self`.

    With `score`, the episode has named rewards, also where a limit cut it.
    """

    def start(self, task: Task) -> str:
        """Begin an episode and say its first text; randomness from `self.np_random`."""
        raise NotImplementedError(f"{type(self).__name__} must define start(task)")

    def respond(self, text: str) -> TextStep:
        """Answer what the policy said."""
        raise NotImplementedError(f"{type(self).__name__} must define respond(text)")

    def score(self) -> Mapping[str, float | None]:
        """Rewards by name of the episode as it stands; `None` = unscored.

        Their weighted sum is added to the last step's reward. By default there are none, and what
        the steps paid is all there is.
        """
        return {}

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> ResetResult:
        """Begin an episode of a task."""
        task = self.pick_task(options)
        return [user(self.start(task))], {"task_id": task.id}

    def step(self, action: Any) -> StepResult:
        """Pass on what the policy said, and what it gets to hear."""
        assert isinstance(action, Message)
        observation, reward, terminated = self.respond(action.content)
        if not terminated and not self.is_last_turn:
            return [user(observation)], reward, False, False, {}
        rewards = self._scores()
        reward += weighted_sum(rewards, self.reward_weights) or 0.0
        info: Info = {"rewards": rewards} if rewards else {}
        return [user(observation)], reward, terminated, False, info

    async def acut(self) -> dict[str, float | None]:
        """Score the episode as it stands."""
        return await self._worker.run(self._scores) if self.end_episode() else {}

    def _scores(self) -> dict[str, float | None]:
        with boundary(RewardError, "score"):
            return as_rewards(self.score())
