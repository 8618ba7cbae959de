"""The state of a finished trajectory as its immutable record."""

import math
from collections import Counter
from typing import Any

from agentgym.envs.base import weighted_sum
from agentgym.errors import EnvError
from agentgym.rollout.state import Trajectory
from agentgym.trajectory import RolloutOutput, StopReason


def record(trajectory: Trajectory, reason: StopReason, error: str | None) -> RolloutOutput:
    """The `RolloutOutput` of a trajectory that has ended."""
    request = trajectory.request
    failed = reason.is_failure
    rewards = {} if failed else _named_rewards(trajectory)
    return RolloutOutput(
        request_id=request.request_id,
        group_id=request.group_id,
        task_id=request.task.id,
        env=request.env,
        seed=request.seed,
        messages=tuple(trajectory.messages),
        segments=trajectory.trace.segments,
        branches=tuple(trajectory.branches),
        rewards=rewards,
        reward=_finite(weighted_sum(rewards, trajectory.reward_weights)),
        turn_rewards=tuple(turn.reward or 0.0 for turn in trajectory.turns),
        stop_reason=reason,
        error=error,
        rollout_infos={**trajectory.infos, **_tool_counts(trajectory)},
        timings=trajectory.timings,
    )


def _named_rewards(trajectory: Trajectory) -> dict[str, float | None]:
    """The env's named scores; an env that gives none has one, the sum of its step rewards."""
    if trajectory.rewards:
        return {name: _scored(value) for name, value in trajectory.rewards.items()}
    given = [turn.reward for turn in trajectory.turns if turn.reward is not None]
    return {"env": sum(given) if given else 0.0}


def _finite(value: float | None) -> float | None:
    if value is not None and not math.isfinite(value):
        raise EnvError(f"the return is {value}, which is not finite")
    return value


def _scored(value: float | None) -> float | None:
    """A number that is none (NaN, infinity) scores nothing."""
    return float(value) if value is not None and math.isfinite(value) else None


def _tool_counts(trajectory: Trajectory) -> dict[str, Any]:
    failures: Counter[str] = Counter(r.error for r in trajectory.tool_results if r.error)
    for turn in trajectory.turns:
        if turn.finish_reason == "length":
            failures["truncated"] += len(turn.action.malformed_calls)
    return {
        "num_tool_calls": len(trajectory.tool_results),
        "tool_failures": {kind: count for kind, count in sorted(failures.items()) if count},
        "tool_seconds": sum(result.seconds for result in trajectory.tool_results),
    }
