"""The default referee: drives an `Env`, which lives exactly as long as its trajectory."""

from collections.abc import Callable, Mapping
from typing import Any

from agentgym.constraint import constraint_of
from agentgym.envs.base import Env
from agentgym.envs.building import build
from agentgym.errors import EnvError
from agentgym.jsonable import as_json
from agentgym.rollout.scheduler import Scheduler, TurnResult
from agentgym.rollout.state import Trajectory
from agentgym.trajectory import StopReason, Turn

MakeEnv = Callable[[], Env]


class GymScheduler(Scheduler):
    """Plays every turn on an env of its own.

    Args:
        make_env: builds the env of one trajectory.
        reward_weights: by name, over the env's own.
        count_tokens: measures text for the tools' output limits; by default they estimate.
    """

    def __init__(
        self,
        make_env: MakeEnv,
        *,
        reward_weights: Mapping[str, float] | None = None,
        count_tokens: Callable[[str], int] | None = None,
    ) -> None:
        self._make_env = make_env
        self._reward_weights = dict(reward_weights or {})
        self._options = {} if count_tokens is None else {"count_tokens": count_tokens}

    async def on_trajectory_start(self, trajectory: Trajectory) -> None:
        """Build and reset the env; its observation is the first prompt."""
        env = await build(self._make_env)
        trajectory.resources["env"] = env
        request = trajectory.request
        options = {"task": request.task, **self._options}
        observation, info = await env.areset(seed=request.seed, options=options)
        trajectory.messages += observation
        trajectory.tools = tuple(env.tools)
        trajectory.reward_weights = {**env.reward_weights, **self._reward_weights}
        trajectory.infos.update(_reported(info))
        trajectory.constraint = constraint_of(info.get("constraint"))

    async def on_turn_end(self, trajectory: Trajectory, turn: Turn) -> TurnResult:
        """Step the env with the policy's message."""
        env = _env(trajectory)
        observation, reward, terminated, truncated, info = await env.astep(turn.action)
        return TurnResult(
            observation=tuple(observation),
            reward=reward,
            stop=_verdict(terminated, truncated, info),
            rewards=info.get("rewards", {}),
            tool_results=tuple(info.get("tool_results", ())),
            infos=_reported(info),
            constraint=constraint_of(info.get("constraint")),
        )

    async def on_trajectory_end(self, trajectory: Trajectory, reason: StopReason) -> None:
        """Score an episode that a limit cut, then close the env."""
        if "env" not in trajectory.resources:
            return
        env = _env(trajectory)
        try:
            if not trajectory.rewards and not reason.is_failure:
                trajectory.rewards.update(await env.acut())
        finally:
            await env.aclose()


def _env(trajectory: Trajectory) -> Env:
    env = trajectory.resources["env"]
    assert isinstance(env, Env)
    return env


def _verdict(terminated: bool, truncated: bool, info: dict[str, Any]) -> StopReason | None:
    if not terminated and not truncated:
        return None
    default = StopReason.TERMINATED if terminated else StopReason.TRUNCATED
    named = info.get("stop_reason", default)
    if named not in set(StopReason):
        raise EnvError(f"step: unknown stop_reason {named!r} in info")
    return StopReason(named)


def _reported(info: dict[str, Any]) -> dict[str, Any]:
    """What the env wants in the record: `info["report"]`, JSON values by name."""
    report = info.get("report", {})
    if not isinstance(report, dict):
        raise EnvError(f"info['report'] must be a dict, got {type(report).__name__}")
    try:
        plain: dict[str, Any] = as_json(report)
    except ValueError as error:
        raise EnvError(f"info['report'] cannot be written as JSON: {error}") from error
    return plain
