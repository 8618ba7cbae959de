"""Rewards to advantages: groups by id or in lists, rewards by function, returns by token."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pytest
import torch

from agentgym.envs.base import weighted_sum
from agentgym.messages import user
from agentgym.rewards.rubric import as_score
from agentgym.trainer.advantages import compute_advantages, discounted_returns
from agentgym.trainer.episodes import Episode
from agentgym.trainer.metrics import Metrics, window_metrics
from agentgym.trajectory import RolloutOutput, StopReason

FINISHED = {"ok", "success", "succeeded", "completed", "done", "finished", "stop", "eos"}


class Member(NamedTuple):
    """One trajectory of a group."""

    group: str
    reward: float | None
    status: str = "ok"


def run(case: Mapping[str, Any]) -> Mapping[str, Any]:
    """Advantages, combined rewards or returns, whichever the input asks for."""
    if "token_rewards" in case:
        return _returns(case)
    if "reward_funcs" in case:
        return _combined(case)
    if "groups" in case:
        return _nested(case, case["groups"], case.get("status"))
    if "group" in case:
        status = case.get("status")
        found = _nested(case, [case["group"]], status and [status])
        return {**found, "advantages": found["advantages"][0]}
    rewards = case["rewards"]
    statuses = case.get("status") or ["ok"] * len(rewards)
    members = zip(_groups(case), rewards, statuses, strict=True)
    return _advantages(case, [_member(*member) for member in members])


def _nested(
    case: Mapping[str, Any],
    groups: Sequence[Sequence[Any]],
    statuses: Sequence[Sequence[str]] | None,
) -> dict[str, Any]:
    words = statuses or [["ok"] * len(group) for group in groups]
    members = [
        _member(f"group {number}", entry, word)
        for number, (group, row) in enumerate(zip(groups, words, strict=True))
        for entry, word in zip(group, row, strict=True)
    ]
    found = _advantages(case, members)
    values = iter(found["advantages"])
    return {**found, "advantages": [[next(values) for _ in group] for group in groups]}


def _groups(case: Mapping[str, Any]) -> list[str]:
    """By id, whatever its type; by position only where there are no ids."""
    size = case.get("num_generations")
    if "group_ids" in case:
        return [repr(group) for group in case["group_ids"]]
    return [str(index // size if size else 0) for index in range(len(case["rewards"]))]


def _member(group: str, entry: Any, status: str) -> Member:
    """Of a reward, or of a reward, which may be missing, and how the trajectory ended."""
    if isinstance(entry, Mapping):
        return Member(group, entry.get("reward"), entry.get("status", status))
    return Member(group, entry, status)


def _stop(status: str) -> StopReason:
    """A word that is no success and no ending of ours is a failure of the infrastructure."""
    if status in FINISHED:
        return StopReason.FINAL_ANSWER
    return StopReason(status) if status in list(StopReason) else StopReason.INFRA_ERROR


def _advantages(case: Mapping[str, Any], members: Sequence[Member]) -> dict[str, Any]:
    episodes = [_episode(member) for member in members]
    rewards = [math.nan if e.reward is None else e.reward for e in episodes]
    advantages = compute_advantages(
        torch.tensor(rewards, dtype=torch.float64),
        [episode.group for episode in episodes],
        estimator=case.get("estimator", "grpo"),
        scale=case.get("scale", "group"),
    )
    metrics = _metrics(window_metrics(episodes), len(episodes))
    return {"advantages": advantages.tolist(), "metrics": metrics}


def _episode(member: Member) -> Episode:
    return Episode.of(
        RolloutOutput(
            request_id="",
            group_id=member.group,
            task_id="",
            env="",
            seed=0,
            messages=(user("?"),),
            segments=(),
            reward=math.nan if member.reward is None else member.reward,
            stop_reason=_stop(member.status),
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


def _combined(case: Mapping[str, Any]) -> dict[str, Any]:
    columns = _named(case["reward_funcs"])
    weights = _named(case.get("weights", {}), list(columns))
    rows = zip(*columns.values(), strict=True)
    scores = [dict(zip(columns, map(as_score, row), strict=True)) for row in rows]
    if strange := weights.keys() - columns.keys():
        pytest.fail(f"weights of unknown reward functions: {', '.join(strange)}")
    return {"rewards": [weighted_sum(row, weights) for row in scores]}


def _named(given: Any, names: Sequence[str] = ()) -> dict[str, Any]:
    """A list is in the order of the reward functions."""
    if isinstance(given, Mapping):
        return dict(given)
    return dict(zip(names or map(str, range(len(given))), given, strict=True))


def _returns(case: Mapping[str, Any]) -> dict[str, Any]:
    returns = discounted_returns(
        torch.tensor(case["token_rewards"], dtype=torch.float64),
        torch.tensor(case["loss_mask"]).bool(),
        gamma=case["gamma"],
    )
    return {"returns": returns.tolist()}
