"""Advantages and log-probabilities to a scalar loss, as pure functions on flat tokens.

What they are given and give is in `agentgym.trainer.flat`, and can be imported from here.

Units: log-probabilities in nats; [N] trained tokens, [S] sequences.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from agentgym.errors import ConfigError, UsageError
from agentgym.registry import LOSSES
from agentgym.trainer.flat import (
    FlatTokens,
    ImportanceLevel,
    LossOutput,
    LossSettings,
    Mean,
    Normalizer,
)
from agentgym.trainer.sequences import means_by_sequence

__all__ = [
    "OWN_LOSSES",
    "FlatTokens",
    "ImportanceLevel",
    "Loss",
    "LossOutput",
    "LossSettings",
    "Mean",
    "Normalizer",
    "bnpo",
    "constant_mean",
    "dapo",
    "dr_grpo",
    "grpo",
    "policy_loss",
    "sequence_mean",
    "token_mean",
]

Loss = Callable[[FlatTokens, LossSettings, Normalizer], LossOutput]


def policy_loss(tokens: FlatTokens, settings: LossSettings, normalizer: Normalizer) -> LossOutput:
    """Loss of one micro-batch, by the function registered as `settings.loss_type`.

    Where gradients are averaged over ranks, the caller multiplies the loss by their number.

    Raises:
        NotRegisteredError: no such loss.
        ConfigError: `beta` without reference log-probabilities, or an unknown importance level.
        UsageError: the loss is not finite.
    """
    loss: Loss = LOSSES.get(settings.loss_type)
    output = loss(tokens, settings, normalizer)
    if not torch.isfinite(output.loss):
        raise UsageError(
            f"the {settings.loss_type} loss of {output.num_tokens} tokens is {output.loss.item()}: "
            "lower learning_rate, or look at the last trajectories"
        )
    return output


def token_mean(values: Tensor, normalizer: Normalizer) -> Tensor:
    """[] share of the mean over all trained tokens of the step: long sequences weigh more."""
    return values.sum() / max(normalizer.num_tokens, 1)


def sequence_mean(
    values: Tensor, sequence_ids: Tensor, normalizer: Normalizer, *, sizes: Tensor | None = None
) -> Tensor:
    """[] share of the mean over sequences of their token means: a sequence weighs 1 in any case.

    Args:
        values: [N].
        sequence_ids: [N].
        normalizer: of the optimizer step.
        sizes: [S] tokens of each sequence; by default those in `values`.
    """
    means = means_by_sequence(values, sequence_ids, sizes)
    return means.sum() / max(normalizer.num_sequences, 1)


def constant_mean(values: Tensor, normalizer: Normalizer, *, max_tokens: int) -> Tensor:
    """[] share of the sum over a constant, sequences x `max_tokens`: a token weighs the same in
    any sequence and any step (Dr. GRPO, arXiv 2503.20783)."""
    return values.sum() / max(normalizer.num_sequences * max_tokens, 1)


def grpo(tokens: FlatTokens, settings: LossSettings, normalizer: Normalizer) -> LossOutput:
    """Clipped surrogate, mean of per-sequence means (arXiv 2402.03300)."""
    terms = _terms(tokens, settings)
    sizes = tokens.sequence_sizes
    loss = sequence_mean(terms.values, tokens.sequence_ids, normalizer, sizes=sizes)
    return _output(terms, loss, tokens)


def dapo(tokens: FlatTokens, settings: LossSettings, normalizer: Normalizer) -> LossOutput:
    """Clipped surrogate, mean over the trained tokens of the step (arXiv 2503.14476)."""
    terms = _terms(tokens, settings)
    return _output(terms, token_mean(terms.values, normalizer), tokens)


def bnpo(tokens: FlatTokens, settings: LossSettings, normalizer: Normalizer) -> LossOutput:
    """Clipped surrogate, mean over the trained tokens of the batch.

    TRL takes the mean over the local micro-batch, so that its update depends on how the step was
    split. Here the batch is the optimizer step, which makes `bnpo` the same as `dapo`; with one
    micro-batch on one rank it is TRL's.
    """
    return dapo(tokens, settings, normalizer)


def dr_grpo(tokens: FlatTokens, settings: LossSettings, normalizer: Normalizer) -> LossOutput:
    """Clipped surrogate over a constant, sequences x `max_completion_tokens`.

    The constant is a whole trajectory's limit, not a turn's (arXiv 2503.20783).
    """
    terms = _terms(tokens, settings)
    limit = settings.max_completion_tokens
    loss = constant_mean(terms.values, normalizer, max_tokens=limit)
    return _output(terms, loss, tokens)


@dataclass(frozen=True)
class _Terms:
    values: Tensor
    """[N] loss of each token."""
    ratio: Tensor
    """[N] importance ratio, equal within a sequence at sequence level."""
    kl: Tensor | None
    settings: LossSettings


def _terms(tokens: FlatTokens, settings: LossSettings) -> _Terms:
    """-min(ratio A, clip(ratio) A) + beta KL, for each token."""
    ratio = _ratio(tokens, settings.importance_level)
    clipped = ratio.clamp(1 - settings.epsilon_low, 1 + settings.epsilon_high)
    bounded = ratio if settings.delta is None else ratio.clamp(max=settings.delta)
    values = -torch.minimum(bounded * tokens.advantages, clipped * tokens.advantages)
    kl = _kl(tokens, settings.beta)
    if kl is not None and settings.use_bias_correction_kl:
        kl = kl * ratio
    if tokens.weights is not None:
        values = values * tokens.weights
    if kl is not None and settings.beta != 0.0:
        values = values + settings.beta * _weighted_kl(kl, tokens)
    return _Terms(values, bounded.detach(), None if kl is None else kl.detach(), settings)


def _ratio(tokens: FlatTokens, level: ImportanceLevel) -> Tensor:
    """[N] pi / pi_old, of the token or as the geometric mean of its sequence."""
    log_ratio = tokens.logprobs - tokens.old_logprobs
    if level == "token":
        return log_ratio.exp()
    if level != "sequence":
        raise ConfigError(f"importance level must be 'token' or 'sequence', not {level!r}")
    return means_by_sequence(log_ratio, tokens.sequence_ids).exp()[tokens.sequence_ids]


def _kl(tokens: FlatTokens, beta: float) -> Tensor | None:
    """[N] k3 estimate of KL(pi || ref): e^d - d - 1 with d = log ref - log pi (Schulman 2020)."""
    if tokens.ref_logprobs is None:
        if beta != 0.0:
            raise ConfigError(f"beta={beta} needs the log-probabilities of a reference policy")
        return None
    difference = tokens.ref_logprobs - tokens.logprobs
    return difference.exp() - difference - 1


def _weighted_kl(kl: Tensor, tokens: FlatTokens) -> Tensor:
    weights = tokens.weights if tokens.kl_weights is None else tokens.kl_weights
    return kl if weights is None else kl * weights


def _output(terms: _Terms, loss: Tensor, tokens: FlatTokens) -> LossOutput:
    metrics, extremes = _clipping(terms, tokens)
    metrics["ratio_mean"] = _mean(terms.ratio, tokens, terms.settings)
    if terms.kl is not None:
        metrics["kl"] = Mean.of(terms.kl)
    if tokens.entropy is not None:
        metrics["entropy"] = Mean.of(tokens.entropy)
    return LossOutput(loss, metrics, extremes, num_tokens=tokens.logprobs.numel())


def _clipping(terms: _Terms, tokens: FlatTokens) -> tuple[dict[str, Mean], dict[str, float]]:
    settings, ratio = terms.settings, terms.ratio
    low = ((ratio < 1 - settings.epsilon_low) & (tokens.advantages < 0)).to(ratio)
    high = ((ratio > 1 + settings.epsilon_high) & (tokens.advantages > 0)).to(ratio)
    metrics = {
        "clip_ratio/low_mean": _mean(low, tokens, settings),
        "clip_ratio/high_mean": _mean(high, tokens, settings),
        "clip_ratio/region_mean": _mean(low + high, tokens, settings),
    }
    if not len(ratio):
        return metrics, {}
    extremes = {
        "clip_ratio/low_min": means_by_sequence(low, tokens.sequence_ids).min().item(),
        "clip_ratio/high_max": means_by_sequence(high, tokens.sequence_ids).max().item(),
    }
    return metrics, extremes


def _mean(values: Tensor, tokens: FlatTokens, settings: LossSettings) -> Mean:
    """Over tokens, or over sequences where the ratio is one per sequence, as in TRL."""
    if settings.importance_level == "sequence":
        values = means_by_sequence(values, tokens.sequence_ids)
    return Mean.of(values)


OWN_LOSSES = {loss.__name__: loss for loss in (grpo, bnpo, dr_grpo, dapo)}
"""Right for parts of a sequence too, as long as ratios are per token."""
for _name, _loss in OWN_LOSSES.items():
    LOSSES.register(_name, _loss)
