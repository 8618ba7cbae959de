"""Figures that are logged: counted over what is there, exact over processes."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from agentgym.trainer.corrections import CorrectionSettings, Opinions, correct
from agentgym.trainer.episodes import Episode
from agentgym.trainer.evaluation import evaluation_metrics
from agentgym.trainer.losses import LossOutput, Mean
from agentgym.trainer.metrics import (
    StepMetrics,
    failing_rewards,
    groups_of_different_starts,
    window_metrics,
)
from agentgym.trainer.ranks import Ranks
from agentgym.trajectory import StopReason


class Alone(Ranks):
    def __init__(self) -> None:
        self.index, self.count = 0, 1


class Told(Ranks):
    """Two ranks; `gather` answers with both contributions."""

    def __init__(self, other: object) -> None:
        self.index, self.count = 0, 2
        self._other = other

    def gather(self, value: object) -> list[object]:  # type: ignore[override]
        return [value, self._other]


class Recorder(Told):
    """Keeps what a rank would send."""

    def gather(self, value: object) -> list[object]:  # type: ignore[override]
        self._other = value
        return [value]

    @property
    def sent(self) -> object:
        return self._other


def episode(reward: float | None = 1.0, **fields: Any) -> Episode:
    defaults = {
        "group": "g",
        "reward": reward,
        "rewards": {"correct": reward},
        "stop": StopReason.FINAL_ANSWER,
        "num_turns": 2,
        "num_sampled": 10,
        "num_tokens": 30,
        "fingerprint": str(id(fields)),
        "start": "s",
    }
    return Episode(**{**defaults, **fields})


def test_rewards_are_averaged_over_the_scored():
    """A window half of which failed has the mean of the other half, not half of it."""
    failed = episode(None, stop=StopReason.ENV_ERROR, rewards={})
    figures = window_metrics([episode(1.0), episode(0.0), failed, failed])

    assert figures["reward"] == 0.5
    assert figures["rewards/correct/mean"] == 0.5
    assert (figures["unscored"], figures["failed"]) == (2, 2)
    assert figures["stop/env_error"] == 0.5
    assert figures["stop/length"] == 0.0


def test_a_reward_that_scored_nothing_has_no_figure():
    """NaN would spread into every average over steps (ms-swift issue 6310)."""
    figures = window_metrics([episode(1.0, rewards={"correct": 1.0, "judge": None})] * 2)

    assert "rewards/judge/mean" not in figures
    assert all(math.isfinite(value) for value in figures.values())


def test_lengths_are_those_of_sampled_tokens_and_of_the_ended():
    """TRL's names, with truncated as every limit that cut."""
    cut = episode(num_sampled=40, stop=StopReason.MAX_TURNS)
    figures = window_metrics([episode(num_sampled=10), cut])

    assert figures["completions/mean_length"] == 25
    assert figures["completions/max_terminated_length"] == 10
    assert figures["completions/clipped_ratio"] == 0.5


def test_the_share_of_tokens_that_were_forced_into_a_form():
    """Of all tokens, not of trajectories; without a token there is none."""
    figures = window_metrics(
        [episode(num_sampled=30, num_constrained=6), episode(num_sampled=10, num_constrained=10)]
    )

    assert figures["completions/constrained_fraction"] == 0.4
    nothing = window_metrics([episode(None, num_sampled=0, stop=StopReason.ENV_ERROR)])
    assert "completions/constrained_fraction" not in nothing


def test_tool_calls_and_failures_by_kind():
    """Per trajectory, and per call."""
    figures = window_metrics(
        [
            episode(num_tool_calls=3, tool_failures={"timeout": 1}),
            episode(num_tool_calls=1, tool_failures={"timeout": 1, "unknown_tool": 0}),
        ]
    )

    assert figures["tools/call_frequency"] == 2
    assert figures["tools/failure_frequency"] == 0.5
    assert figures["tools/failures/timeout"] == 2


def test_identical_members_are_noticed():
    """Ranks or requests that share a seed give copies, and groups without spread."""
    figures = window_metrics([episode(fingerprint="same")] * 3 + [episode(fingerprint="other")])

    assert figures["duplicate_fraction"] == 0.5


def test_groups_that_began_in_different_states_are_named():
    """Invariant 6: members are only compared if they faced the same thing."""
    same, other = episode(start="a"), episode(start="b", group="h")
    failed = episode(None, stop=StopReason.ENV_ERROR, start="")

    assert groups_of_different_starts([same, other, failed]) == []
    assert groups_of_different_starts([same, episode(start="c")]) == ["g"]


values = st.lists(st.floats(-5, 5), min_size=1, max_size=12)


@given(values, values)
def test_means_over_processes_are_means_over_all_values(mine: list[float], theirs: list[float]):
    """Ranks with more tokens count more."""

    def of(numbers: list[float]) -> StepMetrics:
        metrics = StepMetrics()
        for number in numbers:
            mean = Mean(torch.tensor(number, dtype=torch.float64), 1)
            metrics.add_loss(
                LossOutput(torch.tensor(0.0), {"kl": mean}, {"clip_ratio/low_min": number})
            )
            metrics.add_tokens(computed=2, useful=1)
        return metrics

    other = Recorder(None)
    of(theirs).over(other)
    figures = of(mine).over(Told(other.sent))

    both = mine + theirs
    assert figures["kl"] == pytest.approx(sum(both) / len(both), abs=1e-9)
    assert figures["clip_ratio/low_min"] == min(both)
    assert figures["useful_token_fraction"] == 0.5


def opinions(trainer: list[float], sampler: list[float]) -> Opinions:
    """Of one sequence."""
    own = torch.tensor(trainer)
    return Opinions(
        current=own,
        old=own,
        sampler=torch.tensor(sampler),
        advantages=torch.zeros_like(own),
        sequence_ids=torch.zeros(len(own), dtype=torch.int64),
    )


def test_the_mismatch_between_sampler_and_trainer():
    """Over trained tokens only: mean and largest absolute difference."""
    metrics = StepMetrics()
    for tokens in (opinions([-1.0, -1.0, -5.0], [-1.0, -1.0, -1.0]), opinions([], [])):
        found = correct(tokens, CorrectionSettings())
        metrics.add_mismatch(tokens, found, is_whole=True)

    figures = metrics.over(Alone())
    assert figures["sampling/logp_diff_mean"] == pytest.approx(4 / 3)
    assert figures["sampling/logp_diff_max"] == 4.0


def test_an_evaluation_says_how_sure_it_is_and_what_it_could_not_score():
    """Mean over tasks of their members' means, with a 95 % interval over tasks."""
    episodes = [episode(1.0, group="a"), episode(0.0, group="a"), episode(1.0, group="b")]
    episodes += [episode(None, group="c", stop=StopReason.INFRA_ERROR, rewards={})]
    figures = evaluation_metrics(episodes)

    assert figures["reward"] == 0.75
    half = 1.959964 * math.sqrt(0.125) / math.sqrt(2)
    assert figures["reward_high"] - figures["reward"] == pytest.approx(half)
    assert (figures["num_tasks"], figures["num_scored"], figures["num_failed"]) == (3, 3, 1)


def test_an_evaluation_of_failures_only_has_no_reward():
    """Not 0: nothing is known."""
    failed = episode(None, stop=StopReason.INFRA_ERROR, rewards={})

    assert "reward" not in evaluation_metrics([failed, failed])


def test_a_reward_fails_if_it_does_so_on_all_that_could_be_judged():
    """One trajectory that it scored, and it is no news; one whose env broke says nothing of it."""
    failed = {"judge": "no key", "length": "no text"}
    episodes = [
        episode(reward_errors=failed),
        episode(reward_errors={"judge": "no answer"}),
        episode(None, stop=StopReason.ENV_ERROR),
    ]

    assert failing_rewards(episodes) == {"judge": "no key"}
    assert failing_rewards([*episodes, episode()]) == {}
    assert failing_rewards(episodes[2:]) == {}
