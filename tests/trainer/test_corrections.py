"""What the loss makes of a sampler that is not the trainer, against formulas written out slowly."""

import asyncio
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from trainer_kit import steps, weights
from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

from agentgym.engines.base import Generation, Sampling
from agentgym.engines.transformers import TransformersEngine
from agentgym.envs import Env
from agentgym.errors import ConfigError
from agentgym.rendering import Renderer
from agentgym.trainer.config import AgentGRPOConfig
from agentgym.trainer.corrections import (
    ROUNDING,
    CorrectionMode,
    CorrectionSettings,
    Opinions,
    correct,
    derived,
    mismatch,
)
from agentgym.trainer.grpo import AgentGRPOTrainer
from agentgym.trainer.logprobs import TokenLogprobs
from agentgym.trainer.losses import FlatTokens, LossSettings, Normalizer, policy_loss
from agentgym.trainer.packing import PackedBatch

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


def weights_of(opinions: Opinions, settings: CorrectionSettings) -> torch.Tensor | None:
    return correct(opinions, settings).weights


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
                "mask": min(ratio, settings.maximum) if low <= judged <= settings.maximum else 0.0,
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
    weights = weights_of(opinions_of(rows), settings)

    if weights is None:
        assert (mode, threshold) == ("none", None)
        return
    assert weights.tolist() == pytest.approx(slowly(rows, settings), rel=1e-9)


@given(sequences)
def test_success_is_never_too_far_off_policy(rows: list[list[tuple[float, float, float]]]):
    """Only failures of a policy that is gone are left out."""
    settings = CorrectionSettings(mode="none", off_policy_threshold=0.0)

    assert weights_of(opinions_of(rows, sign=1.0), settings).min() == 1.0  # type: ignore[union-attr]


@given(sequences, st.sampled_from(MODES))
def test_a_sampler_that_agrees_changes_no_bit(
    rows: list[list[tuple[float, float, float]]], mode: CorrectionMode
):
    same = [[(current, old, old) for current, old, _ in row] for row in rows]
    weights = weights_of(opinions_of(same), CorrectionSettings(mode=mode))

    assert weights is None or bool((weights == 1.0).all())


def test_what_rounding_makes_of_a_batch_changes_no_bit():
    """Else the update would depend on which turns happened to be sampled at once."""
    rows = [[(-1.0, -1.0, -1.0 + noise)] for noise in (-9e-5, -1e-7, 2e-6, 9e-5)]

    assert weights_of(opinions_of(rows), CorrectionSettings()).tolist() == [1.0] * 4  # type: ignore[union-attr]


def test_a_long_trajectory_survives_the_rounding_of_half_precision():
    """4,000 tokens, each off by 0.02: the product of the ratios is out of bounds in many."""
    noise = np.random.default_rng(0).normal(0.0, 0.02, size=(64, 4000))
    rows = [[(-1.0, -1.0 + float(n), -1.0) for n in row] for row in noise]
    found = correct(opinions_of(rows), CorrectionSettings(mode="sequence_mask"))

    assert (np.exp(noise.sum(axis=1)) > 2.0).mean() > 0.2
    assert found.weights is not None
    assert bool((found.weights > 0).all())


def test_one_token_gone_wrong_in_a_long_trajectory_is_bounded_by_every_mode():
    """The mean over a thousand tokens hides it from the bounds of a trajectory."""
    rows = [[(-1.0, -1.0, -1.0)] * 999 + [(-1.0, -1.0, -19.0)]]
    for mode in ("token_truncate", "token_mask", "sequence_truncate", "sequence_mask"):
        weights = weights_of(opinions_of(rows), CorrectionSettings(mode=mode))
        assert weights is not None
        assert weights.max() <= 2.0


@pytest.mark.parametrize("mode", MODES)
def test_nothing_is_called_clipped_that_no_bound_has_changed(mode: CorrectionMode):
    rows = [[(-1.0, -1.0 + n / 100, -1.0) for n in range(-5, 6)]]
    tame, wild = opinions_of(rows), opinions_of([*rows, [(-1.0, 1.0, -1.0)]])
    settings = CorrectionSettings(mode=mode)

    def clipped(opinions: Opinions) -> float:
        found = correct(opinions, settings)
        return mismatch(opinions, found, is_whole=True)["clipped_fraction"].sum().item()

    assert clipped(tame) == 0
    assert clipped(wild) == (mode != "none")


def test_a_figure_by_trajectory_needs_all_of_it():
    """Its traces may lie in several micro-batches; half of them say something else."""
    opinions = opinions_of([[(-1.0, -1.0, -2.0)]])
    found = correct(opinions, CorrectionSettings())

    assert "chi2_sequence" not in mismatch(opinions, found, is_whole=False)


def loss_of(
    weights: torch.Tensor | None, kl_weights: torch.Tensor | None = None, **settings: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """Loss and gradient of four tokens of two sequences."""
    logprobs = torch.tensor([-1.0, -2.0, -0.5, -1.5], requires_grad=True)
    tokens = FlatTokens(
        logprobs=logprobs,
        old_logprobs=logprobs.detach(),
        advantages=torch.tensor([1.0, 1.0, -2.0, -2.0]),
        sequence_ids=torch.tensor([0, 0, 1, 1]),
        ref_logprobs=torch.tensor([-1.2, -1.9, -0.7, -1.0]),
        weights=weights,
        kl_weights=kl_weights,
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


def test_a_trajectory_that_is_left_out_keeps_its_kl_term():
    """The equation masks the policy's term alone: the reference holds what has gone too far."""
    settings = CorrectionSettings(off_policy_threshold=0.1)
    found = correct(opinions_of([[(-2.0, -1.0, -1.5)]], sign=-1.0), settings)
    assert found.weights is not None
    assert found.kl_weights is not None
    assert found.weights.item() == 0.0
    assert found.kl_weights.item() == pytest.approx(math.exp(0.5))

    _, gradient = loss_of(torch.zeros(4), torch.ones(4), loss_type="dapo", beta=0.1)
    difference = torch.tensor([-0.2, 0.1, -0.2, 0.5])
    assert torch.allclose(gradient, 0.1 * (1 - difference.exp()) / 4)


def test_figures_of_a_mismatch_written_out():
    """Two sequences; perplexities and sample size follow from the means."""
    rows = [[(-1.0, -1.0, -1.5), (-2.0, -2.0, -1.0)], [(-0.5, -0.5, -0.5)]]
    opinions = opinions_of(rows)
    values = mismatch(opinions, correct(opinions, CorrectionSettings()), is_whole=True)
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
        ({"rollout_correction_max": float("inf")}, "rollout_correction_max"),
        ({"rollout_correction_min": 1.5}, "rollout_correction_min"),
        ({"rollout_correction": "sum"}, "sum"),
        ({"rollout_correction": "none", "rollout_correction_min": 0.5}, "has no use for .*min=0.5"),
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


class Drifting(TransformersEngine):
    """Reports log-probabilities that are not the policy's."""

    async def generate(
        self, prompt_ids: tuple[int, ...], sampling: Sampling, *, session: str
    ) -> Generation:
        said = await super().generate(prompt_ids, sampling, session=session)
        random = np.random.default_rng(sampling.seed % 2**32)
        noise = random.normal(random.normal(0, 1.5), 0.5, len(said.logprobs))
        off = np.minimum(np.asarray(said.logprobs) + noise, 0)
        return replace(said, logprobs=tuple(off.tolist()))


class Counted(AgentGRPOTrainer):
    """Counts forward passes of the policy by whether they have a gradient."""

    def compute_logprobs(
        self, model: torch.nn.Module, batch: PackedBatch, *, with_entropy: bool = False
    ) -> TokenLogprobs:
        counts = vars(self).setdefault("counts", {True: 0, False: 0})
        counts[torch.is_grad_enabled()] += 1
        return super().compute_logprobs(model, batch, with_entropy=with_entropy)


@pytest.mark.parametrize("mode", ["none", "token_truncate", "sequence_mask"])
@pytest.mark.parametrize(
    ("settings", "without", "with_gradient"),
    [
        ({}, 0, 1),
        ({"num_iterations": 2, "max_steps": 2}, 0, 2),
        ({"steps_per_generation": 2, "max_steps": 2, "num_iterations": 1}, 1, 2),
    ],
    ids=["fresh", "two passes", "two parts"],
)
def test_fresh_data_need_no_pass_of_their_own(
    make_args: Callable[..., AgentGRPOConfig],
    make_model: Callable[[], Qwen3ForCausalLM],
    words_env: type[Env],
    chatty: Renderer,
    tokenizer: PreTrainedTokenizerFast,
    mode: str,
    settings: dict[str, Any],
    without: int,
    with_gradient: int,
):
    """The first update computes what the correction compares with; only later parts are scored."""
    trainer = Counted(
        make_model(),
        make_args(
            rollout_correction=mode,
            skip_zero_advantage=False,
            max_completion_length=8,
            **settings,
        ),
        env=words_env,
        renderer=chatty,
        processing_class=tokenizer,
    )
    trainer.train()

    assert vars(trainer)["counts"] == {True: with_gradient, False: without}


@pytest.mark.parametrize(
    "mode", ["token_truncate", "token_mask", "sequence_truncate", "sequence_mask"]
)
def test_figures_and_update_do_not_depend_on_the_split(
    make_trainer: Callable[..., AgentGRPOTrainer], mode: str
):
    """A sampler that is far off: every weight counts, and so does every figure."""

    def run(budget: int) -> tuple[torch.Tensor, dict[str, float]]:
        engine = Drifting(make_trainer().policy)
        trainer = make_trainer(
            {"engine": engine}, token_budget=budget, rollout_correction=mode, optim="sgd"
        )
        trainer.train()
        asyncio.run(engine.aclose())
        (row,) = steps(trainer)
        return weights(trainer), {k: v for k, v in row.items() if k.startswith("rollout_corr")}

    (whole, figures), (split, parts) = run(100_000), run(90)
    assert torch.cosine_similarity(whole, split, dim=0) >= 0.99999
    assert torch.allclose(whole, split, atol=1e-4)
    assert figures["rollout_correction/clipped_fraction"] > 0
    assert parts == pytest.approx(figures, rel=1e-3, abs=1e-5)
