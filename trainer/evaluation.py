"""What held-out tasks say about a policy."""

import math
from collections.abc import Sequence
from statistics import fmean, stdev

from agentgym.trainer.episodes import Episode
from agentgym.trainer.metrics import Metrics, reward_columns

Z95 = 1.959964
"""Half width of a 95 % interval, in standard errors of the mean."""


def evaluation_metrics(episodes: Sequence[Episode]) -> Metrics:
    """Mean reward over the tasks, with its interval, and what could not be scored.

    `reward` is the mean over tasks of their trajectories' mean; `reward_low` and `reward_high` are
    its 95 % normal interval over tasks. Figures without a value are left out.
    """
    groups: dict[str, list[float]] = {}
    for episode in episodes:
        if episode.reward is not None:
            groups.setdefault(episode.group, []).append(episode.reward)
    metrics: Metrics = {
        "num_tasks": len({episode.group for episode in episodes}),
        "num_scored": sum(map(len, groups.values())),
        "num_failed": sum(episode.stop.is_failure for episode in episodes),
        **_mean_with_interval([fmean(rewards) for rewards in groups.values()]),
    }
    for name, values in reward_columns(episodes).items():
        if values:
            metrics[f"rewards/{name}/mean"] = fmean(values)
    if episodes:
        metrics["turns/mean"] = fmean(episode.num_turns for episode in episodes)
        metrics["completions/mean_length"] = fmean(episode.num_sampled for episode in episodes)
    return metrics


def _mean_with_interval(values: Sequence[float]) -> Metrics:
    if not values:
        return {}
    mean = fmean(values)
    if len(values) < 2:
        return {"reward": mean}
    spread = stdev(values)
    half = Z95 * spread / math.sqrt(len(values))
    return {
        "reward": mean,
        "reward_std": spread,
        "reward_low": mean - half,
        "reward_high": mean + half,
    }
