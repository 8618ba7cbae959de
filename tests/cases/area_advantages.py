"""Rewards to advantages: groups by id or in lists, rewards by function, returns by token."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from agentgym.envs.base import weighted_sum
from agentgym.messages import user
from agentgym.rewards.rubric import as_score
from agentgym.trainer.advantages import compute_advantages, discounted_returns
from agentgym.trainer.episodes import Episode
from agentgym.trainer.metrics import Metrics, window_metrics
from agentgym.trajectory import RolloutOutput, StopReason


def run(case: Mapping[str, Any]) -> Mapping[str, Any]:
    """Advantages, combined rewards or returns, whichever the input asks for."""
    if "token_rewards" in case:
        return _returns(case)
    if "reward_funcs" in case:
        return _combined(case)
    if "groups" in case:
        flat = [
            (f"group {number}", member)
            for number, group in enumerate(case["groups"])
            for member in group
        ]
        result = _advantages(case, flat)
        return {**result, "advantages": _nested(result["advantages"], case["groups"])}
    if "group" in case:
        return _advantages(case, [("the group", member) for member in case["group"]])
    members = zip(case["group_ids"], case["rewards"], strict=True)
    return _advantages(case, [(str(group), reward) for group, reward in members])


def _advantages(case: Mapping[str, Any], members: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    episodes = [_episode(group, member) for group, member in members]
    rewards = [math.nan if e.reward is None else e.reward for e in episodes]
    advantages = compute_advantages(
        torch.tensor(rewards, dtype=torch.float64),
        [episode.group for episode in episodes],
        estimator=case.get("estimator", "grpo"),
        scale=case.get("scale", "group"),
    )
    metrics = _metrics(window_metrics(episodes), len(episodes))
    return {"advantages": advantages.tolist(), "metrics": metrics}


def _episode(group: str, member: Any) -> Episode:
    """Of a reward, or of a reward and how the trajectory ended."""
    if not isinstance(member, Mapping):
        member = {"reward": member, "status": "ok"}
    status, reward = member["status"], member["reward"]
    return Episode.of(
        RolloutOutput(
            request_id="",
            group_id=group,
            task_id="",
            env="",
            seed=0,
            messages=(user("?"),),
            segments=(),
            reward=math.nan if reward is None else reward,
            stop_reason=StopReason.FINAL_ANSWER if status == "ok" else StopReason(status),
        )
    )


def _metrics(logged: Metrics, count: int) -> dict[str, Any]:
    stops = {f"n_{reason}": round(logged[f"stop/{reason}"] * count) for reason in StopReason}
    return {
        **stops,
        "frac_zero_std": logged["frac_reward_zero_std"],
        "n_unscored": logged["unscored"],
        "n_failed": logged["failed"],
    }


def _nested(flat: Sequence[float], groups: Sequence[Sequence[Any]]) -> list[list[float]]:
    values = iter(flat)
    return [[next(values) for _ in group] for group in groups]


def _combined(case: Mapping[str, Any]) -> dict[str, Any]:
    names = list(case["reward_funcs"])
    rows = zip(*case["reward_funcs"].values(), strict=True)
    scores = [dict(zip(names, map(as_score, row), strict=True)) for row in rows]
    return {"rewards": [weighted_sum(row, case.get("weights", {})) for row in scores]}


def _returns(case: Mapping[str, Any]) -> dict[str, Any]:
    returns = discounted_returns(
        torch.tensor(case["token_rewards"], dtype=torch.float64),
        torch.tensor(case["loss_mask"]).bool(),
        gamma=case["gamma"],
    )
    return {"returns": returns.tolist()}
