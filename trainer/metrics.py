"""What is logged: TRL's names where TRL has the figure, and what multi-turn training needs beside.

Every mean is over the values that are there, counted over all processes; a figure without a value
is left out, never 0.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import fmean, stdev
from typing import NamedTuple, get_args

import torch

from agentgym.messages import ToolErrorKind
from agentgym.trainer.advantages import reward_statistics
from agentgym.trainer.corrections import Correction, Opinions, derived, mismatch
from agentgym.trainer.episodes import Episode
from agentgym.trainer.losses import LossOutput, Mean
from agentgym.trainer.ranks import Ranks
from agentgym.trajectory import StopReason

Metrics = dict[str, float]
CONSTRAINED_FRACTION = "completions/constrained_fraction"
"""Share of the sampled tokens that were forced into a form, and so are not trained."""
_CORRECTION = "rollout_correction/"


def window_metrics(episodes: Sequence[Episode]) -> Metrics:
    """Of the trajectories of a window, over all processes."""
    return {
        **_reward_metrics(episodes),
        **_length_metrics(episodes),
        **_turn_metrics(episodes),
        **_tool_metrics(episodes),
        **_time_metrics(episodes),
    }


def reward_columns(episodes: Iterable[Episode]) -> dict[str, list[float]]:
    """Scored values by name of the reward."""
    columns: dict[str, list[float]] = {}
    for episode in episodes:
        for name, value in episode.rewards.items():
            columns.setdefault(name, []).extend([] if value is None else [value])
    return columns


def failing_rewards(episodes: Iterable[Episode]) -> dict[str, str]:
    """Reward functions that failed on every trajectory that could be judged, and what one says."""
    judged = [episode.reward_errors for episode in episodes if not episode.stop.is_failure]
    names = set.intersection(*map(set, judged)) if judged else set()
    return {name: judged[0][name] for name in sorted(names)}


def _reward_metrics(episodes: Sequence[Episode]) -> Metrics:
    rewards = [float("nan") if e.reward is None else e.reward for e in episodes]
    groups = [episode.group for episode in episodes]
    figures = reward_statistics(torch.tensor(rewards, dtype=torch.float64), groups)
    metrics = {name: value for name, value in figures.items() if value == value}
    metrics["unscored"] = metrics.pop("num_unscored")
    for name, values in reward_columns(episodes).items():
        metrics |= _moments(f"rewards/{name}", values)
    for name, count in Counter(n for e in episodes for n in e.reward_errors).items():
        metrics[f"rewards/{name}/errors"] = count
    return metrics


def _moments(name: str, values: Sequence[float]) -> Metrics:
    metrics = {f"{name}/mean": fmean(values)} if values else {}
    if len(values) > 1:
        metrics[f"{name}/std"] = stdev(values)
    return metrics


def _length_metrics(episodes: Sequence[Episode]) -> Metrics:
    ended = [episode for episode in episodes if not episode.is_truncated]
    metrics = _spread("completions/{}_length", [e.num_sampled for e in episodes])
    metrics |= _spread("completions/{}_terminated_length", [e.num_sampled for e in ended])
    metrics["completions/clipped_ratio"] = _share(e.is_truncated for e in episodes)
    if num_sampled := sum(episode.num_sampled for episode in episodes):
        num_constrained = sum(episode.num_constrained for episode in episodes)
        metrics[CONSTRAINED_FRACTION] = num_constrained / num_sampled
    return metrics


def _spread(name: str, values: Sequence[float]) -> Metrics:
    if not values:
        return {}
    figures = {"mean": fmean(values), "min": min(values), "max": max(values)}
    return {name.format(kind): float(value) for kind, value in figures.items()}


def _turn_metrics(episodes: Sequence[Episode]) -> Metrics:
    metrics = _spread("turns/{}", [episode.num_turns for episode in episodes])
    stops = Counter(episode.stop for episode in episodes)
    metrics |= {f"stop/{stop.value}": stops[stop] / len(episodes) for stop in StopReason}
    metrics["failed"] = sum(episode.stop.is_failure for episode in episodes)
    metrics["failed_attempts"] = sum(episode.num_attempts - 1 for episode in episodes)
    metrics["duplicate_fraction"] = _duplicate_fraction(episodes)
    metrics["groups_of_different_starts"] = len(groups_of_different_starts(episodes))
    return metrics


def _duplicate_fraction(episodes: Sequence[Episode]) -> float:
    played = [(e.group, e.fingerprint) for e in episodes if not e.stop.is_failure]
    return 1 - len(set(played)) / len(played) if played else 0.0


def groups_of_different_starts(episodes: Sequence[Episode]) -> list[str]:
    """Groups whose members did not begin in the same state, so that they cannot be compared."""
    starts: dict[str, set[str]] = {}
    for episode in episodes:
        if not episode.stop.is_failure:
            starts.setdefault(episode.group, set()).add(episode.start)
    return sorted(group for group, hashes in starts.items() if len(hashes) > 1)


def _tool_metrics(episodes: Sequence[Episode]) -> Metrics:
    calls = sum(episode.num_tool_calls for episode in episodes)
    failures = Counter(dict.fromkeys(get_args(ToolErrorKind), 0))
    for episode in episodes:
        failures.update(episode.tool_failures)
    metrics = {"tools/call_frequency": calls / len(episodes)}
    metrics |= {f"tools/failures/{kind}": float(count) for kind, count in failures.items()}
    if calls:
        metrics["tools/failure_frequency"] = sum(failures.values()) / calls
    return metrics


def _time_metrics(episodes: Sequence[Episode]) -> Metrics:
    """Seconds per trajectory: they overlap, so they do not add up to the step's time."""
    phases = {phase for episode in episodes for phase in episode.seconds}
    return {
        f"time/{phase}": fmean(e.seconds[phase] for e in episodes if phase in e.seconds)
        for phase in sorted(phases)
    }


def _share(flags: Iterable[bool]) -> float:
    return fmean(map(float, flags))


class _Sums(NamedTuple):
    """What a rank tells the others about an optimizer step."""

    means: dict[str, tuple[float, int]]
    """Total and count by name."""
    extremes: dict[str, float]
    num_useful: int
    num_computed: int


class StepMetrics:
    """What the micro-batches of one optimizer step say, put together exactly."""

    def __init__(self) -> None:
        self._means: dict[str, Mean] = {}
        self._extremes: dict[str, list[float]] = {}
        self.num_computed = 0
        """Input tokens of forward passes with gradient, padding included."""
        self._num_useful = 0

    def add_loss(self, output: LossOutput) -> None:
        """Figures of one micro-batch's loss."""
        for name, mean in output.metrics.items():
            self._add_mean(name, mean)
        for name, value in output.extremes.items():
            self._extremes.setdefault(name, []).append(value)

    def add_mismatch(self, opinions: Opinions, found: Correction, *, is_whole: bool) -> None:
        """How far the sampler of these tokens is from the trainer that begins to use them."""
        difference = (opinions.old - opinions.sampler).abs()
        if not difference.numel():
            return
        self._add_mean("sampling/logp_diff_mean", Mean.of(difference))
        self._extremes.setdefault("sampling/logp_diff_max", []).append(difference.max().item())
        for name, values in mismatch(opinions, found, is_whole=is_whole).items():
            self._add_mean(f"{_CORRECTION}{name}", Mean.of(values))

    def add_dropped(self, found: Correction) -> None:
        """Tokens that are left out for the way the policy has gone since, at every use."""
        if found.dropped is not None:
            self._add_mean("off_policy_masked_fraction", Mean.of(found.dropped.float()))

    def add_tokens(self, *, computed: int, useful: int) -> None:
        """Size of one micro-batch: all input tokens, and the trained ones."""
        self.num_computed += computed
        self._num_useful += useful

    def over(self, ranks: Ranks) -> Metrics:
        """The step's figures over all processes; collective."""
        means = {name: (mean.total.item(), mean.count) for name, mean in self._means.items()}
        extremes = {name: _extreme(name, values) for name, values in self._extremes.items()}
        everyones = ranks.gather(_Sums(means, extremes, self._num_useful, self.num_computed))
        metrics: Metrics = {}
        for name in sorted({name for sums in everyones for name in sums.means}):
            parts = [sums.means[name] for sums in everyones if name in sums.means]
            count = sum(count for _, count in parts)
            if count:
                metrics[name] = math.fsum(total for total, _ in parts) / count
        metrics = _with_derived(metrics)
        for name in sorted({name for sums in everyones for name in sums.extremes}):
            values = [sums.extremes[name] for sums in everyones if name in sums.extremes]
            metrics[name] = _extreme(name, values)
        if computed := sum(sums.num_computed for sums in everyones):
            useful = sum(sums.num_useful for sums in everyones)
            metrics["useful_token_fraction"] = useful / computed
        return metrics

    def _add_mean(self, name: str, mean: Mean) -> None:
        self._means[name] = self._means[name] + mean if name in self._means else mean


def _with_derived(metrics: Metrics) -> Metrics:
    """Parts of figures as the figures."""
    means = {
        name.removeprefix(_CORRECTION): value
        for name, value in metrics.items()
        if name.startswith(_CORRECTION)
    }
    if not means:
        return metrics
    shown = {n: v for n, v in metrics.items() if not n.startswith(f"{_CORRECTION}_")}
    return shown | {f"{_CORRECTION}{name}": value for name, value in derived(means).items()}


def _extreme(name: str, values: Sequence[float]) -> float:
    """Names end in `_min` or `_max`, which says what is kept."""
    return min(values) if name.endswith("_min") else max(values)
