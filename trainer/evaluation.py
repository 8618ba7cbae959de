"""What held-out tasks say about a policy."""

import math
from collections.abc import Sequence
from statistics import fmean, stdev
from typing import TYPE_CHECKING

from agentgym.rollout.sampler import Tasks, held_out
from agentgym.trainer.episodes import Episode
from agentgym.trainer.metrics import Metrics, reward_columns
from agentgym.trainer.stage import tell_callbacks

if TYPE_CHECKING:
    from agentgym.trainer.grpo import AgentGRPOTrainer

Z95 = 1.959964
"""Half width of a 95 % interval, in standard errors of the mean."""


def play_held_out(
    trainer: "AgentGRPOTrainer", tasks: Tasks, *, num_tasks: int, temperature: float, name: str
) -> Metrics:
    """Play the first held-out tasks under the current weights; collective.

    Args:
        trainer: whose policy plays.
        tasks: as many of them as there are, at most `num_tasks`.
        num_tasks: of all ranks.
        temperature: 0.0 is greedy.
        name: what callbacks are told.
    """
    args = trainer.args
    requests = held_out(
        trainer.game.name,
        tasks,
        num_tasks=num_tasks,
        group_size=args.num_generations_eval,
        seed=args.seed,
    )
    own = trainer.ranks.share(requests, args.num_generations_eval)
    outputs = trainer.windows.play(own, temperature=temperature).outputs
    tell_callbacks(
        trainer,
        trainer.ranks,
        lambda callback: callback.on_evaluation(
            args, trainer.state, trainer.control, outputs=outputs, name=name
        ),
    )
    return evaluation_metrics(trainer.windows.everyones_episodes(outputs))


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
