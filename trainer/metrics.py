"""What is logged: TRL's names where TRL has the figure, and what multi-turn training needs beside.

Every mean is over the values that are there, counted over all processes; a figure without a value
is left out, never 0.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, stdev

import torch

from agentgym.trainer.advantages import reward_statistics
from agentgym.trainer.episodes import Episode
from agentgym.trainer.losses import LossOutput, Mean
from agentgym.trainer.ranks import Ranks

Metrics = dict[str, float]


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
    return metrics


def _spread(name: str, values: Sequence[float]) -> Metrics:
    if not values:
        return {}
    figures = {"mean": fmean(values), "min": min(values), "max": max(values)}
    return {name.format(kind): float(value) for kind, value in figures.items()}


def _turn_metrics(episodes: Sequence[Episode]) -> Metrics:
    metrics = _spread("turns/{}", [episode.num_turns for episode in episodes])
    for stop, count in Counter(episode.stop for episode in episodes).items():
        metrics[f"stop/{stop.value}"] = count / len(episodes)
    metrics["failed"] = sum(episode.stop.is_failure for episode in episodes)
    distinct = {(episode.group, episode.fingerprint) for episode in episodes}
    metrics["duplicate_fraction"] = 1 - len(distinct) / len(episodes)
    metrics["groups_of_different_starts"] = len(groups_of_different_starts(episodes))
    return metrics


def groups_of_different_starts(episodes: Sequence[Episode]) -> list[str]:
    """Groups whose members did not begin in the same state, so that they cannot be compared."""
    starts: dict[str, set[str]] = {}
    for episode in episodes:
        if not episode.stop.is_failure:
            starts.setdefault(episode.group, set()).add(episode.start)
    return sorted(group for group, hashes in starts.items() if len(hashes) > 1)


def _tool_metrics(episodes: Sequence[Episode]) -> Metrics:
    calls = sum(episode.num_tool_calls for episode in episodes)
    failures: Counter[str] = Counter()
    for episode in episodes:
        failures.update(episode.tool_failures)
    metrics = {"tools/call_frequency": calls / len(episodes)}
    if calls:
        metrics["tools/failure_frequency"] = sum(failures.values()) / calls
    metrics |= {f"tools/failures/{kind}": float(count) for kind, count in failures.items()}
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


class StepMetrics:
    """What the micro-batches of one optimizer step say, put together exactly."""

    def __init__(self) -> None:
        self.means: dict[str, Mean] = {}
        self.extremes: dict[str, float] = {}
        self.num_input_tokens = 0
        """Computed in forward passes with gradient, padding included."""
        self.num_useful_tokens = 0
        """Trained ones among them."""

    def add_loss(self, output: LossOutput) -> None:
        """Figures of one micro-batch's loss."""
        for name, mean in output.metrics.items():
            self._add_mean(name, mean)
        for name, value in output.extremes.items():
            self.add_extreme(name, value)

    def add_mismatch(self, ours: torch.Tensor, samplers: torch.Tensor) -> None:
        """|trainer's - sampler's| log-probability of the trained tokens, under equal weights."""
        difference = (ours - samplers).abs()
        if not difference.numel():
            return
        self._add_mean("sampling/logp_diff_mean", Mean(difference.sum(), difference.numel()))
        self.add_extreme("sampling/logp_diff_max", difference.max().item())

    def add_tokens(self, *, computed: int, useful: int) -> None:
        """Size of one micro-batch."""
        self.num_input_tokens += computed
        self.num_useful_tokens += useful

    def _add_mean(self, name: str, mean: Mean) -> None:
        self.means[name] = self.means[name] + mean if name in self.means else mean

    def add_extreme(self, name: str, value: float) -> None:
        """Names end in `_min` or `_max`, which says what is kept."""
        best = min if name.endswith("_min") else max
        self.extremes[name] = best(self.extremes[name], value) if name in self.extremes else value

    def over(self, ranks: Ranks) -> Metrics:
        """The step's figures over all processes; collective."""
        totals = {name: (mean.total.item(), mean.count) for name, mean in self.means.items()}
        tokens = (self.num_useful_tokens, self.num_input_tokens)
        merged = StepMetrics()
        sums: Counter[str] = Counter()
        counts: Counter[str] = Counter()
        useful = computed = 0
        for their_totals, extremes, (their_useful, their_computed) in ranks.gather(
            (totals, self.extremes, tokens)
        ):
            for name, (total, count) in their_totals.items():
                sums[name] += total  # type: ignore[assignment]
                counts[name] += count
            for name, value in extremes.items():
                merged.add_extreme(name, value)
            useful, computed = useful + their_useful, computed + their_computed
        metrics = {name: sums[name] / counts[name] for name in counts if counts[name]}
        if computed:
            metrics["useful_token_fraction"] = useful / computed
        return metrics | merged.extremes


def means_of(rows: Sequence[Mapping[str, float]]) -> Metrics:
    """By name, over the rows that have it."""
    names = {name for row in rows for name in row}
    return {name: fmean(row[name] for row in rows if name in row) for name in names}
