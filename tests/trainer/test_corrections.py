"""What the loss makes of a sampler that is not the trainer, against formulas written out slowly."""

import math
from typing import Any, get_args

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from agentgym.errors import ConfigError
from agentgym.trainer.config import AgentGRPOConfig
from agentgym.trainer.corrections import (
    ROUNDING,
    CorrectionMode,
    CorrectionSettings,
    Opinions,
    correction_weights,
    derived,
    mismatch,
)
from agentgym.trainer.losses import FlatTokens, LossSettings, Normalizer, policy_loss

MODES = get_args(CorrectionMode)
logprob = st.floats(-12, 0, width=32)
sequences = st.lists(
    st.lists(st.tuples(logprob, logprob, logprob), min_size=1, max_size=5), min_size=1, max_size=4
)


def opinions_of(rows: list[list[tuple[float, float, float]]], sign: float = -1.0) -> Opinions:
    """From (current, old, sampler) of every token of every sequence."""
    flat = torch.tensor([token for row in rows for token in row], dtype=torch.float64)
    ids = torch.tensor([i for i, row in enumerate(rows) for _ in row])
    return Opinions(
        current=flat[:, 0],
        old=flat[:, 1],
        sampler=flat[:, 2],
        advantages=torch.full((len(flat),), sign, dtype=torch.float64),
        sequence_ids=ids,
    )


def slowly(rows: list[list[tuple[float, float, float]]], settings: CorrectionSettings) -> Any:
    """The definition, token by token."""
    low = 0.0 if settings.minimum is None else settings.minimum
    found = []
    for row in rows:
        logs = [np.clip(old - sampler, -20, 20) for _, old, sampler in row]
        logs = [log if abs(log) > ROUNDING else 0.0 for log in logs]
        mean = math.exp(sum(logs) / len(logs))
        distance = sum(sampler - current for current, _, sampler in row) / len(row)
        for log in logs:
            ratio = math.exp(log)
            judged = mean if settings.mode.startswith("sequence") else ratio
            weight = {
                "none": 1.0,
                "truncate": min(max(judged, low), settings.maximum),
                "mask": ratio if low <= judged <= settings.maximum else 0.0,
            }[settings.mode.rpartition("_")[2]]
            threshold = settings.off_policy_threshold
            found.append(0.0 if threshold is not None and distance > threshold else weight)
    return found


@given(
    sequences, st.sampled_from(MODES), st.sampled_from([None, 0.5]), st.sampled_from([None, 1.0])
)
def test_weights_are_those_of_the_definition(
    rows: list[list[tuple[float, float, float]]],
    mode: CorrectionMode,
    minimum: float | None,
    threshold: float | None,
):
    """Every mode, with and without a lower bound and the mask of what is off policy."""
    settings = CorrectionSettings(mode=mode, minimum=minimum, off_policy_threshold=threshold)
    weights = correction_weights(opinions_of(rows), settings)

    if weights is None:
        assert (mode, threshold) == ("none", None)
        return
    assert weights.tolist() == pytest.approx(slowly(rows, settings), rel=1e-9)


@given(sequences)
def test_success_is_never_too_far_off_policy(rows: list[list[tuple[float, float, float]]]):
    """Only failures of a policy that is gone are left out."""
    settings = CorrectionSettings(mode="none", off_policy_threshold=0.0)

    assert correction_weights(opinions_of(rows, sign=1.0), settings).min() == 1.0  # type: ignore[union-attr]


@given(sequences, st.sampled_from(MODES))
def test_a_sampler_that_agrees_changes_no_bit(
    rows: list[list[tuple[float, float, float]]], mode: CorrectionMode
):
    same = [[(current, old, old) for current, old, _ in row] for row in rows]
    weights = correction_weights(opinions_of(same), CorrectionSettings(mode=mode))

    assert weights is None or bool((weights == 1.0).all())


def test_what_rounding_makes_of_a_batch_changes_no_bit():
    """Else the update would depend on which turns happened to be sampled at once."""
    rows = [[(-1.0, -1.0, -1.0 + noise)] for noise in (-9e-5, -1e-7, 2e-6, 9e-5)]

    assert correction_weights(opinions_of(rows), CorrectionSettings()).tolist() == [1.0] * 4  # type: ignore[union-attr]


def test_a_long_trajectory_survives_the_rounding_of_half_precision():
    """4,000 tokens, each off by 0.02: the product of the ratios would be out of any bounds."""
    noise = np.random.default_rng(0).normal(0.01, 0.02, size=(32, 4000))
    rows = [[(-1.0, -1.0 + float(n), -1.0) for n in row] for row in noise]
    masked = correction_weights(opinions_of(rows), CorrectionSettings(mode="sequence_mask"))

    summed = np.exp(np.clip(noise.sum(axis=1), -20, 20))
    assert (summed > 2.0).all()
    assert masked is not None
    assert (masked > 0).all()


def loss_of(weights: torch.Tensor | None, **settings: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Loss and gradient of four tokens of two sequences."""
    logprobs = torch.tensor([-1.0, -2.0, -0.5, -1.5], requires_grad=True)
    tokens = FlatTokens(
        logprobs=logprobs,
        old_logprobs=logprobs.detach(),
        advantages=torch.tensor([1.0, 1.0, -2.0, -2.0]),
        sequence_ids=torch.tensor([0, 0, 1, 1]),
        ref_logprobs=torch.tensor([-1.2, -1.9, -0.7, -1.0]),
        weights=weights,
    )
    loss = policy_loss(tokens, LossSettings(**settings), Normalizer(4, 2)).loss
    loss.backward()  # type: ignore[no-untyped-call]
    assert logprobs.grad is not None
    return loss.detach(), logprobs.grad


@pytest.mark.parametrize("loss_type", ["grpo", "dapo", "bnpo", "dr_grpo"])
def test_weights_multiply_every_tokens_share_and_its_kl_term(loss_type: str):
    """What is masked gives no gradient and still counts in the denominator."""
    weights = torch.tensor([1.0, 0.0, 0.5, 2.0])
    _, plain = loss_of(None, loss_type=loss_type, beta=0.1)
    _, weighted = loss_of(weights, loss_type=loss_type, beta=0.1)

    assert torch.allclose(weighted, plain * weights)
    assert torch.equal(
        loss_of(torch.ones(4), loss_type=loss_type)[1], loss_of(None, loss_type=loss_type)[1]
    )


def test_figures_of_a_mismatch_written_out():
    """Two sequences; perplexities and sample size follow from the means."""
    rows = [[(-1.0, -1.0, -1.5), (-2.0, -2.0, -1.0)], [(-0.5, -0.5, -0.5)]]
    opinions = opinions_of(rows)
    weights = correction_weights(opinions, CorrectionSettings())
    values = mismatch(opinions, weights)
    means = {name: value.mean().item() for name, value in values.items()}
    figures = {**means, **derived(means)}

    ratios = [math.exp(0.5), math.exp(-1.0), 1.0]
    assert figures["kl"] == pytest.approx((-0.5 + 1.0 + 0.0) / 3)
    assert figures["k3_kl"] == pytest.approx((ratios[0] - 1.5 + ratios[1] - 1 + 1.0 + 0.0) / 3)
    assert figures["chi2_token"] == pytest.approx(sum(r * r - 1 for r in ratios) / 3)
    assert figures["chi2_sequence"] == pytest.approx((math.exp(-0.5) - 1) / 2)
    assert figures["weight_mean"] == pytest.approx(sum(ratios) / 3)
    assert figures["effective_sample_size"] == pytest.approx(
        sum(ratios) ** 2 / sum(r * r for r in ratios) / 3
    )
    assert figures["trainer_perplexity"] == pytest.approx(math.exp(3.5 / 3))
    assert figures["sampler_perplexity"] == pytest.approx(math.exp(3.0 / 3))
    assert figures["perplexity_ratio"] == pytest.approx(math.exp(0.5 / 3))
    assert (figures["clipped_fraction"], figures["masked_fraction"]) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"rollout_correction_max": 0.5}, "rollout_correction_max"),
        ({"rollout_correction_min": 1.5}, "rollout_correction_min"),
        ({"rollout_correction": "sum"}, "sum"),
        ({"vllm_importance_sampling_mode": "token_mask"}, "rollout_correction"),
        ({"off_policy_mask_threshold": -1.0}, "off_policy_mask_threshold"),
    ],
)
def test_settings_that_make_no_sense_are_refused_by_name(settings: dict[str, Any], said: str):
    with pytest.raises(ConfigError, match=said):
        AgentGRPOConfig(use_cpu=True, max_steps=1, **settings)


@pytest.mark.parametrize(
    ("settings", "whole"),
    [
        ({}, False),
        ({"rollout_correction": "sequence_mask"}, True),
        ({"off_policy_mask_threshold": 0.5}, True),
    ],
)
def test_what_judges_a_trajectory_sees_all_of_it(settings: dict[str, Any], whole: bool):
    """Traces of one trajectory may else lie in several micro-batches."""
    args = AgentGRPOConfig(use_cpu=True, max_steps=1, **settings)

    assert args.plan_settings(padding=False).keep_whole is whole
