"""Wrappers in Gymnasium's sense that pass the async side on.

They go inside Gymnasium's own wrappers, which only know the sync side.
"""

from collections.abc import Mapping
from typing import Any

import gymnasium

from agentgym.envs.base import (
    Env,
    Info,
    Observation,
    ResetResult,
    StepResult,
    TaskSet,
    weighted_sum,
)
from agentgym.errors import ConfigError
from agentgym.messages import system
from agentgym.tools import Tool
from agentgym.trajectory import StopReason


class Wrapper(gymnasium.Wrapper[Observation, Any, Observation, Any], Env):  # type: ignore[misc]
    """Passes everything on to the env inside; override either side of what should differ.

    Raises:
        ConfigError: the env inside has no async side.
    """

    env: Env

    def __init__(self, env: Env) -> None:
        if not isinstance(env, Env):
            raise ConfigError(
                f"{type(self).__name__} needs an agentgym Env, got {env}; "
                "put Gymnasium's own wrappers outside"
            )
        super().__init__(env)

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> ResetResult:
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> StepResult:
        return self.env.step(action)

    def close(self) -> None:
        self.env.close()

    async def areset(self, *, seed: int | None = None, options: Info | None = None) -> ResetResult:
        return await self.env.areset(seed=seed, options=options)

    async def astep(self, action: Any) -> StepResult:
        return await self.env.astep(action)

    async def aclose(self) -> None:
        await self.env.aclose()

    async def acut(self) -> dict[str, float | None]:
        self.end_episode()
        return await self.env.acut()

    def tasks(self, split: str = "train") -> TaskSet:
        return self.env.tasks(split)

    def seed_generator(self, seed: int | None) -> None:
        """Nothing: the env inside owns the generator."""

    @property
    def tools(self) -> tuple[Tool, ...]:
        return self.env.tools

    @tools.setter
    def tools(self, tools: tuple[Tool, ...]) -> None:
        self.env.tools = tools

    @property
    def reward_weights(self) -> Mapping[str, float]:
        return self.env.reward_weights

    @reward_weights.setter
    def reward_weights(self, weights: Mapping[str, float]) -> None:
        self.env.reward_weights = weights

    @property
    def max_turns(self) -> int | None:
        return self.env.max_turns

    @max_turns.setter
    def max_turns(self, max_turns: int | None) -> None:
        self.env.max_turns = max_turns


class TurnLimit(Wrapper):
    """Truncates an episode after `limit` turns; the env still scores it."""

    def __init__(self, env: Env, limit: int) -> None:
        if limit < 1:
            raise ConfigError(f"a turn limit must be at least 1, got {limit}")
        super().__init__(env)
        self.limit = limit

    async def astep(self, action: Any) -> StepResult:
        """A step; the last one allowed brings the rewards of what was played."""
        observation, reward, terminated, truncated, info = await self.env.astep(action)
        if terminated or truncated or self._contract.turn < self.limit:
            return observation, reward, terminated, truncated, info
        rewards = await self.env.acut()
        reward += weighted_sum(rewards, self.reward_weights) or 0.0
        ending = {"rewards": rewards} if rewards else {}
        return (
            observation,
            reward,
            False,
            True,
            info | ending | {"stop_reason": StopReason.MAX_TURNS.value},
        )


class SystemPrompt(Wrapper):
    """Puts a system message at the start, in place of one that is there."""

    def __init__(self, env: Env, text: str) -> None:
        super().__init__(env)
        self.text = text

    async def areset(self, *, seed: int | None = None, options: Info | None = None) -> ResetResult:
        """A reset whose observation begins with the text."""
        observation, info = await self.env.areset(seed=seed, options=options)
        rest = observation[1:] if observation and observation[0].role == "system" else observation
        return [system(self.text), *rest], info
