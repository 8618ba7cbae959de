"""Advantages: golden values, and the properties that make a group a group."""

import math
import random
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from agentgym.envs.base import weighted_sum
from agentgym.errors import ConfigError, NotRegisteredError
from agentgym.registry import ADVANTAGES
from agentgym.rewards.rubric import as_score
from agentgym.trainer.advantages import (
    Scale,
    compute_advantages,
    discounted_returns,
    reward_statistics,
)

ESTIMATORS = ["grpo", "rloo", "reinforce_plus_plus"]
SCALES: list[Scale] = ["group", "batch", "none"]

estimators, scales = st.sampled_from(ESTIMATORS), st.sampled_from(SCALES)
reward = st.one_of(st.floats(-100, 100), st.sampled_from([math.nan, math.inf, -math.inf, 0.0, 1.0]))
batches = st.lists(st.tuples(reward, st.sampled_from("abc")), min_size=1, max_size=16)


@pytest.mark.parametrize(
    ("estimator", "scale", "winner", "loser"),
    [
        ("grpo", "group", 1.4997, -0.4999),
        ("grpo", "batch", 1.4997, -0.4999),
        ("grpo", "none", 0.75, -0.25),
        ("rloo", "none", 1.0, -1 / 3),
        ("reinforce_plus_plus", "batch", 1.4997, -0.4999),
    ],
)
def test_golden_values(estimator: str, scale: Scale, winner: float, loser: float) -> None:
    """One of four was right; values of an established system."""
    rewards = torch.tensor([1.0, 0.0, 0.0, 0.0])
    advantages = compute_advantages(rewards, ["g"] * 4, estimator=estimator, scale=scale)

    assert advantages.tolist() == pytest.approx([winner, loser, loser, loser], abs=1e-4)


def test_estimators_differ_where_groups_differ() -> None:
    """REINFORCE++ divides by the spread within groups, GRPO by that of all rewards."""
    rewards = torch.tensor([1.0, 0.0, 11.0, 10.0])
    groups = ["a", "a", "b", "b"]
    within = math.sqrt(4 * 0.25 / 3) + 1e-4
    overall = rewards.std().item() + 1e-4
    ours = compute_advantages(rewards, groups, estimator="reinforce_plus_plus", scale="batch")
    theirs = compute_advantages(rewards, groups, estimator="grpo", scale="batch")

    assert ours.tolist() == pytest.approx([0.5 / within, -0.5 / within] * 2)
    assert theirs.tolist() == pytest.approx([0.5 / overall, -0.5 / overall] * 2)


@settings(deadline=None)
@given(estimator=estimators, scale=scales, batch=batches, seed=st.integers(0, 2**16))
def test_order_does_not_matter(
    estimator: str, scale: Scale, batch: list[tuple[float, str]], seed: int
) -> None:
    """A group is its id: shuffling the batch shuffles the advantages and changes none."""
    order = list(range(len(batch)))
    random.Random(seed).shuffle(order)
    straight = _advantages(batch, estimator, scale)
    shuffled = _advantages([batch[i] for i in order], estimator, scale)

    torch.testing.assert_close(shuffled, straight[order])


@settings(deadline=None)
@given(estimator=estimators, scale=scales, batch=batches)
def test_unscored_is_as_if_it_had_not_been_played(
    estimator: str, scale: Scale, batch: list[tuple[float, str]]
) -> None:
    """A failed scorer must not move the others, and its own trajectory gets exactly 0."""
    scored = [entry for entry in batch if math.isfinite(entry[0])]
    advantages = _advantages(batch, estimator, scale)
    kept = torch.tensor([math.isfinite(entry[0]) for entry in batch])

    torch.testing.assert_close(advantages[kept], _advantages(scored, estimator, scale))
    assert (advantages[~kept] == 0).all()
    assert torch.isfinite(advantages).all()


@settings(deadline=None)
@given(estimator=estimators, scale=scales, batch=batches)
def test_advantages_of_a_group_sum_to_zero(
    estimator: str, scale: Scale, batch: list[tuple[float, str]]
) -> None:
    """The baseline is the group's own mean."""
    advantages = _advantages(batch, estimator, scale)
    for group in "abc":
        members = torch.tensor([entry[1] == group for entry in batch])

        assert advantages[members].sum().abs() <= 1e-5 * (1 + advantages.abs().max())


def _advantages(batch: list[tuple[float, str]], estimator: str, scale: Scale) -> Tensor:
    rewards = torch.tensor([entry[0] for entry in batch], dtype=torch.float64)
    groups = [entry[1] for entry in batch]
    return compute_advantages(rewards, groups, estimator=estimator, scale=scale)


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize(
    "rewards",
    [
        [0.3, 0.1 + 0.2, 0.3, 0.3],
        [1e6, 1e6, 1e6 + 0.0625, 1e6],
        [0.1, 0.1, 0.1, 0.1],
        [5.0],
        [math.nan, 2.0, math.inf],
        [math.nan, math.nan],
    ],
)
def test_no_spread_is_exactly_no_advantage(
    estimator: str, scale: Scale, rewards: list[float]
) -> None:
    """Rounding noise divided by almost nothing would become a gradient."""
    advantages = compute_advantages(
        torch.tensor(rewards, dtype=torch.float64),
        ["g"] * len(rewards),
        estimator=estimator,
        scale=scale,
    )

    assert advantages.tolist() == [0.0] * len(rewards)


def test_tensor_group_ids_and_integer_rewards() -> None:
    """Ids may be a tensor; integers become float32."""
    advantages = compute_advantages(torch.tensor([1, 0]), torch.tensor([7, 7]), scale="none")

    assert advantages.dtype == torch.float32
    assert advantages.tolist() == [0.5, -0.5]


def test_a_small_spread_is_a_signal() -> None:
    """Only rounding is ignored, not small rewards."""
    advantages = compute_advantages(torch.tensor([1e-3, 2e-3]), ["g"] * 2, scale="none")

    assert advantages.tolist() == pytest.approx([-5e-4, 5e-4])


def test_an_estimator_that_returns_no_number_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An estimator from a plugin may be wrong; NaN must not travel on to the weights."""
    broken = lambda rewards, *, groups, scale: rewards / 0  # noqa: E731
    monkeypatch.setitem(ADVANTAGES._entries, "broken", broken)

    with pytest.raises(ConfigError, match="'broken' returned a value that is not finite"):
        compute_advantages(torch.tensor([1.0, 0.0]), ["g", "g"], estimator="broken")


def test_bad_requests_say_what_is_wrong() -> None:
    """Names, scales and lengths."""
    rewards = torch.tensor([1.0, 0.0])
    wrong: Any = "std"

    with pytest.raises(NotRegisteredError, match="Did you mean 'rloo'"):
        compute_advantages(rewards, ["g", "g"], estimator="rlo")
    with pytest.raises(ConfigError, match="'group', 'batch' or 'none', not 'std'"):
        compute_advantages(rewards, ["g", "g"], scale=wrong)
    with pytest.raises(ConfigError, match="2 rewards but 1 group ids"):
        compute_advantages(rewards, ["g"])


@given(st.dictionaries(st.sampled_from("abc"), reward), st.floats(-3, 3))
def test_a_trajectorys_reward_counts_what_is_there(values: dict[str, float], weight: float) -> None:
    """Missing is missing, not 0; nothing at all is unscored; a weight that is not given is 1."""
    weights = {"a": weight, "b": 0.5}
    found = weighted_sum({name: as_score(value) for name, value in values.items()}, weights)
    there = [weights.get(n, 1.0) * v for n, v in values.items() if math.isfinite(v)]

    assert found == (pytest.approx(sum(there)) if there else None)


def test_reward_statistics() -> None:
    """Over scored rewards; a group of which one is scored carries no signal."""
    rewards = torch.tensor([1.0, 0.0, 1.0, 1.0, math.nan, 4.0])
    statistics = reward_statistics(rewards, ["a", "a", "b", "b", "c", "c"])

    assert statistics["reward"] == pytest.approx(1.4)
    assert statistics["reward_std"] == pytest.approx(rewards[torch.isfinite(rewards)].std().item())
    assert statistics["frac_reward_zero_std"] == pytest.approx(2 / 3)
    assert statistics["num_unscored"] == 1


def test_reward_statistics_of_nothing() -> None:
    """A window in which everything failed has no mean, and is no crash."""
    statistics = reward_statistics(torch.tensor([math.nan]), ["a"])

    assert math.isnan(statistics["reward"])
    assert math.isnan(statistics["reward_std"])
    assert statistics["frac_reward_zero_std"] == 1
    assert statistics["num_unscored"] == 1


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.floats(-1, 1), st.booleans()), min_size=1, max_size=12), st.floats(0.1, 1)
)
def test_discount_counts_sampled_tokens_only(
    tokens: list[tuple[float, bool]], gamma: float
) -> None:
    """Reward k sampled tokens later is worth gamma^k, whatever lies between."""
    rewards = torch.tensor([r for r, _ in tokens], dtype=torch.float64)
    mask = torch.tensor([m for _, m in tokens])
    returns = discounted_returns(rewards, mask, gamma=gamma)
    for start in range(len(tokens)):
        expected = sum(
            gamma ** int(mask[start:end].sum()) * rewards[end].item()
            for end in range(start, len(tokens))
        )

        assert returns[start].item() == pytest.approx(expected, abs=1e-9)
