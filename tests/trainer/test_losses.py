"""Losses: worked examples, and that the update does not depend on how a step was split."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from agentgym.errors import ConfigError, NotRegisteredError, UsageError
from agentgym.registry import LOSSES
from agentgym.trainer.losses import (
    FlatTokens,
    LossOutput,
    LossSettings,
    Mean,
    Normalizer,
    constant_mean,
    policy_loss,
    sequence_mean,
    token_mean,
)

LOSS_TYPES = ["grpo", "bnpo", "dr_grpo", "dapo"]

lengths = st.lists(st.integers(1, 6), min_size=1, max_size=8)


def make_tokens(counts: list[int], seed: int = 0) -> FlatTokens:
    """Random tokens of sequences of these lengths, far enough off-policy to be clipped."""
    generator = torch.Generator().manual_seed(seed)
    size = sum(counts)
    logprobs, noise, reference = torch.randn(3, size, generator=generator, dtype=torch.float64)
    ids = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts, dtype=torch.int64))
    advantages = torch.randn(len(counts), generator=generator, dtype=torch.float64)
    return FlatTokens(
        logprobs=logprobs.requires_grad_(),
        old_logprobs=logprobs.detach() + 0.3 * noise,
        advantages=advantages[ids],
        sequence_ids=ids,
        ref_logprobs=logprobs.detach() + 0.3 * reference,
        entropy=noise.abs(),
    )


def part_of(tokens: FlatTokens, sequences: list[int]) -> FlatTokens:
    """Some sequences as a micro-batch of their own; gradients flow to the whole."""
    picked = [(tokens.sequence_ids == s).nonzero()[:, 0] for s in sequences]
    index = torch.cat(picked) if picked else torch.zeros(0, dtype=torch.int64)
    local = [torch.full((len(p),), i) for i, p in enumerate(picked)]
    assert tokens.ref_logprobs is not None
    assert tokens.entropy is not None
    return FlatTokens(
        logprobs=tokens.logprobs[index],
        old_logprobs=tokens.old_logprobs[index],
        advantages=tokens.advantages[index],
        sequence_ids=torch.cat(local) if local else index,
        ref_logprobs=tokens.ref_logprobs[index],
        entropy=tokens.entropy[index],
    )


def whole(tokens: FlatTokens) -> Normalizer:
    """Counts of a step of one micro-batch."""
    return Normalizer(len(tokens.logprobs), len(torch.unique(tokens.sequence_ids)))


def gradient(loss: Tensor, tokens: FlatTokens) -> Tensor:
    """[N] of the log-probabilities."""
    return torch.autograd.grad(loss, tokens.logprobs)[0]


@pytest.mark.parametrize("loss_type", LOSS_TYPES)
@pytest.mark.parametrize("level", ["token", "sequence"])
@settings(max_examples=25, deadline=None)
@given(counts=lengths, cut=st.randoms(use_true_random=False), seed=st.integers(0, 99))
def test_the_split_into_micro_batches_changes_nothing(
    loss_type: str, level: Any, counts: list[int], cut: Any, seed: int
) -> None:
    """Loss, gradient and metrics of the parts add up to those of the whole step."""
    tokens = make_tokens(counts, seed)
    options = LossSettings(loss_type, level, beta=0.1, max_completion_tokens=7)
    one = policy_loss(tokens, options, whole(tokens))
    order = list(range(len(counts)))
    cut.shuffle(order)
    edges = sorted(cut.choices(range(len(order) + 1), k=2))
    pieces = [order[: edges[0]], order[edges[0] : edges[1]], order[edges[1] :]]
    parts = [policy_loss(part_of(tokens, p), options, whole(tokens)) for p in pieces]
    total = torch.stack([part.loss for part in parts]).sum()

    torch.testing.assert_close(total, one.loss)
    torch.testing.assert_close(gradient(total, tokens), gradient(one.loss, tokens))
    assert sum(part.num_tokens for part in parts) == one.num_tokens
    for name, mean in one.metrics.items():
        a, b, c = (part.metrics[name] for part in parts)

        assert (a + b + c).value == pytest.approx(mean.value)
    for name, value in one.extremes.items():
        best = min if name.endswith("_min") else max

        assert best(p.extremes[name] for p in parts if p.num_tokens) == value


@pytest.mark.parametrize("loss_type", LOSS_TYPES)
@pytest.mark.parametrize("level", ["token", "sequence"])
def test_no_trained_token_is_loss_zero(loss_type: str, level: Any) -> None:
    """A rank without work takes part in backward and adds nothing; the step is not made."""
    tokens = make_tokens([2])
    empty = part_of(tokens, [])
    output = policy_loss(empty, LossSettings(loss_type, level, beta=0.1), Normalizer(0, 0))

    assert output.loss == 0
    assert output.num_tokens == 0
    assert gradient(output.loss, tokens).tolist() == [0.0, 0.0]
    assert math.isnan(output.metrics["kl"].value)


def test_reductions_weigh_length_differently() -> None:
    """Two long wrong sequences and a short right one."""
    values = torch.tensor([-1.0] * 2 + [1.0] * 6 + [1.0] * 8)
    ids = torch.tensor([0] * 2 + [1] * 6 + [2] * 8)
    counts = Normalizer(16, 3)

    assert token_mean(values, counts) == pytest.approx(0.75)
    assert sequence_mean(values, ids, counts) == pytest.approx(1 / 3)
    assert constant_mean(values, counts, max_tokens=10) == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "slope"),
    [
        (1.0, 2.0, -2.0, -2.0),
        (1.1, 2.0, -2.2, -2.2),
        (1.5, 2.0, -2.56, 0.0),
        (0.5, 2.0, -1.0, -1.0),
        (0.5, -2.0, 1.6, 0.0),
        (1.5, -2.0, 3.0, 3.0),
    ],
)
def test_clipping(ratio: float, advantage: float, loss: float, slope: float) -> None:
    """Pessimistic: no gradient from moving further where the policy has already moved far."""
    new = torch.tensor([math.log(ratio)], requires_grad=True)
    tokens = FlatTokens(new, torch.zeros(1), torch.tensor([advantage]), torch.tensor([0]))
    output = policy_loss(tokens, LossSettings(epsilon_high=0.28), Normalizer(1, 1))

    assert output.loss.item() == pytest.approx(loss)
    assert gradient(output.loss, tokens).item() == pytest.approx(slope)
    assert output.metrics["clip_ratio/high_mean"].value == (ratio == 1.5 and advantage > 0)
    assert output.metrics["clip_ratio/low_mean"].value == (ratio == 0.5 and advantage < 0)


def test_delta_bounds_the_ratio_of_bad_actions() -> None:
    """Without it a negative advantage is pushed on however large the ratio is."""
    new = torch.tensor([math.log(50.0)], requires_grad=True)
    tokens = FlatTokens(new, torch.zeros(1), torch.tensor([-1.0]), torch.tensor([0]))
    free = policy_loss(tokens, LossSettings(), Normalizer(1, 1)).loss
    bounded = policy_loss(tokens, LossSettings(delta=4.0), Normalizer(1, 1)).loss

    assert free.item() == pytest.approx(50.0)
    assert bounded.item() == pytest.approx(4.0)
    assert gradient(bounded, tokens).item() == 0.0


def test_sequence_level_ratio_is_the_geometric_mean() -> None:
    """One ratio for the whole sequence, the length taken out."""
    new = torch.log(torch.tensor([1.1, 1.21, 1.0, 0.9]))
    ids = torch.tensor([0, 0, 0, 1])
    tokens = FlatTokens(new.requires_grad_(), torch.zeros(4), torch.ones(4), ids)
    output = policy_loss(tokens, LossSettings("grpo", "sequence"), Normalizer(4, 2))

    assert output.loss.item() == pytest.approx(-(1.1 + 0.9) / 2)
    assert output.metrics["ratio_mean"].count == 2
    assert output.metrics["ratio_mean"].value == pytest.approx(1.0)


def test_kl_is_zero_at_the_reference_and_k3_elsewhere() -> None:
    """e^d - d - 1 with d = log ref - log pi, weighted by beta."""
    new = torch.tensor([-1.0, -2.0], requires_grad=True)
    tokens = FlatTokens(new, new.detach(), torch.zeros(2), torch.tensor([0, 0]), new.detach())
    options = LossSettings(beta=0.5)
    same = policy_loss(tokens, options, Normalizer(2, 1))
    other = replace(tokens, ref_logprobs=torch.tensor([-1.5, -2.0]))
    apart = policy_loss(other, options, Normalizer(2, 1))
    k3 = math.exp(-0.5) + 0.5 - 1

    assert same.loss == 0
    assert same.metrics["kl"].value == 0
    assert apart.loss.item() == pytest.approx(0.5 * k3 / 2)
    assert apart.metrics["kl"].value == pytest.approx(k3 / 2)


def test_corrected_kl_has_the_gradient_of_the_divergence() -> None:
    """On policy, averaged over what the policy would sample: that of KL(pi || ref) itself."""
    logits = torch.tensor([0.3, -0.2, 0.9], dtype=torch.float64, requires_grad=True)
    reference = torch.tensor([0.5, 0.1, 0.4], dtype=torch.float64).log()
    policy = logits.log_softmax(0)
    [expected] = torch.autograd.grad((policy.exp() * (policy - reference)).sum(), logits)
    logprobs = logits.log_softmax(0)
    ids = torch.arange(3)
    tokens = FlatTokens(logprobs, logprobs.detach(), torch.zeros(3), ids, reference)
    options = LossSettings(beta=1.0, use_bias_correction_kl=True)
    one_each = [
        policy_loss(part_of(replace(tokens, entropy=logprobs), [i]), options, Normalizer(1, 1)).loss
        for i in range(3)
    ]
    [found] = torch.autograd.grad((policy.exp().detach() * torch.stack(one_each)).sum(), logits)

    torch.testing.assert_close(found, expected)


def test_masked_positions_are_gone_before_anything_is_computed() -> None:
    """A placeholder may be NaN or infinite: 0 x NaN is not 0."""
    new = torch.tensor([[-1.0, math.nan, -1.0], [math.inf, -2.0, math.nan]], requires_grad=True)
    mask = torch.tensor([[1, 0, 1], [0, 1, 0]])
    tokens = FlatTokens.from_rows(
        new, new.detach().clone(), advantages=torch.tensor([1.0, -1.0]), mask=mask
    )
    loss = policy_loss(tokens, LossSettings("grpo"), Normalizer(3, 2)).loss
    [slope] = torch.autograd.grad(loss, new)

    assert loss.item() == pytest.approx(0.0)
    assert slope.tolist() == [[-0.25, 0.0, -0.25], [0.0, 0.5, 0.0]]


def test_rows_without_a_trained_token_are_no_sequence() -> None:
    """They would otherwise enter the metrics as sequences of nothing."""
    values = torch.zeros(3, 2)
    mask = torch.tensor([[1, 1], [0, 0], [0, 1]])
    tokens = FlatTokens.from_rows(values, values, advantages=torch.zeros(3), mask=mask)

    assert tokens.sequence_ids.tolist() == [0, 0, 1]


def test_a_registered_loss_is_found_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plugin's loss is a plain function like the others."""

    def plain(tokens: FlatTokens, settings: LossSettings, normalizer: Normalizer) -> LossOutput:
        loss = -(tokens.advantages * tokens.logprobs).sum() / normalizer.num_tokens
        return LossOutput(loss, {"mine": Mean.of(tokens.logprobs)}, num_tokens=len(tokens.logprobs))

    monkeypatch.setitem(LOSSES._entries, "reinforce", plain)
    tokens = make_tokens([2, 3])
    output = policy_loss(tokens, LossSettings("reinforce"), whole(tokens))

    assert output.metrics["mine"].value == pytest.approx(tokens.logprobs.mean().item())
    torch.testing.assert_close(gradient(output.loss, tokens), -tokens.advantages / 5)


def test_what_cannot_be_optimised_says_why() -> None:
    """Wrong settings and numbers that would reach the weights."""
    tokens = make_tokens([2])
    wrong: Any = "turn"
    broken = replace(tokens, advantages=torch.tensor([1.0, math.nan]))

    with pytest.raises(NotRegisteredError, match="Did you mean 'dr_grpo'"):
        policy_loss(tokens, LossSettings("drgrpo"), whole(tokens))
    with pytest.raises(ConfigError, match="'token' or 'sequence', not 'turn'"):
        policy_loss(tokens, LossSettings(importance_level=wrong), whole(tokens))
    with pytest.raises(ConfigError, match=r"beta=0.1 needs the log-probabilities of a reference"):
        policy_loss(replace(tokens, ref_logprobs=None), LossSettings(beta=0.1), whole(tokens))
    with pytest.raises(UsageError, match="the dapo loss of 2 tokens is nan: lower learning_rate"):
        policy_loss(broken, LossSettings(), whole(tokens))
