"""What the loss makes of tokens that another policy sampled than the one that is trained.

The sampler's numerics are not the trainer's, and its weights may be older. Each token's share of
the loss is multiplied by how much likelier the trainer finds it, bounded: importance sampling. The
forms by sequence take the geometric mean, so that a long trajectory is not thrown away for the sum
of many small differences.

Units: nats. [N] trained tokens, [S] sequences of the micro-batch, each of them whole.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from agentgym.errors import ConfigError
from agentgym.trainer.sequences import means_by_sequence

CorrectionMode = Literal[
    "none", "token_truncate", "token_mask", "sequence_truncate", "sequence_mask"
]
MAX_LOG_RATIO = 20.0
"""Beyond it a ratio is no figure to compute with."""
ROUNDING = 1e-4
"""Nats. Two sides in float32 differ by less for the order in which they add, which depends on what
else is in a batch; a run must not, so such a difference counts as none."""


@dataclass(frozen=True, kw_only=True)
class CorrectionSettings:
    """How the loss allows for the sampler."""

    mode: CorrectionMode = "token_truncate"
    """`token`: every token has a ratio of its own; `sequence`: it has the geometric mean of its
    trajectory's. `truncate` bounds ratios, `mask` leaves out tokens whose ratio (`token`) or
    trajectory's ratio (`sequence`) is above its bound or below it; the others keep their own, up
    to the upper bound."""
    maximum: float = 2.0
    minimum: float | None = None
    off_policy_threshold: float | None = None
    """Leave out a trajectory of negative advantage that the policy has moved away from by more
    nats per token (DeepSeek-V3.2, arXiv 2512.02556, equation 9); its KL term stays."""

    def __post_init__(self) -> None:
        """Refuse unknown modes, and bounds that leave nothing or cut what is exact.

        Raises:
            ConfigError: names the mode, or both bounds.
        """
        if self.mode not in get_args(CorrectionMode):
            modes = ", ".join(get_args(CorrectionMode))
            raise ConfigError(f"rollout_correction={self.mode!r} must be one of {modes}")
        low = 0.0 if self.minimum is None else self.minimum
        if not 0.0 <= low <= 1.0 <= self.maximum < float("inf"):
            raise ConfigError(
                f"rollout_correction_min={self.minimum} and rollout_correction_max={self.maximum} "
                "must lie on the two sides of 1, the ratio of a sampler that agrees"
            )

    @property
    def needs_whole(self) -> bool:
        """Whether all traces of a trajectory must be in one micro-batch."""
        return self.mode.startswith("sequence") or self.off_policy_threshold is not None


@dataclass(frozen=True, kw_only=True)
class Opinions:
    """Log-probabilities of the same tokens, without gradient."""

    current: Tensor
    """[N] under the weights that are being updated."""
    old: Tensor
    """[N] under the trainer's weights that the window began with."""
    sampler: Tensor
    """[N] as the engine reported them."""
    advantages: Tensor
    """[N]."""
    sequence_ids: Tensor
    """[N] int64 in 0..S-1."""


class Correction(NamedTuple):
    """What became of the tokens; `None` stands for tokens that are all left alone."""

    weights: Tensor | None
    """[N] factors of the tokens' shares of the loss."""
    kl_weights: Tensor | None
    """[N] factors of their KL terms."""
    clipped: Tensor | None
    """[N] true where a bound of importance sampling changed the factor, to 0 included."""
    dropped: Tensor | None
    """[N] true where the policy has moved too far away to learn from a failure."""


def correct(opinions: Opinions, settings: CorrectionSettings) -> Correction:
    """How much of each token's share of the loss counts."""
    weights, clipped = _importance(opinions, settings)
    if settings.off_policy_threshold is None:
        return Correction(weights, weights, clipped, None)
    dropped = _dropped(opinions, settings.off_policy_threshold)
    weights = torch.ones_like(opinions.current) if weights is None else weights
    return Correction(weights * ~dropped, weights, clipped, dropped)


def log_ratio(old: Tensor, sampler: Tensor) -> Tensor:
    """[N] trainer's over sampler's, bounded."""
    return (old - sampler).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)


def _beyond_rounding(difference: Tensor) -> Tensor:
    return difference.where(difference.abs() > ROUNDING, 0.0)


def _importance(
    opinions: Opinions, settings: CorrectionSettings
) -> tuple[Tensor | None, Tensor | None]:
    """[N] weights, and where a bound made them."""
    if settings.mode == "none":
        return None, None
    ids, low, high = opinions.sequence_ids, settings.minimum, settings.maximum
    own = _beyond_rounding(log_ratio(opinions.old, opinions.sampler))
    judged = own.exp()
    if settings.mode.startswith("sequence"):
        judged = means_by_sequence(own, ids).exp()[ids]
    outside = judged > high
    if low is not None:
        outside |= judged < low
    if settings.mode.endswith("truncate"):
        return judged.clamp(low, high), outside
    bounded = own.exp().clamp(max=high)
    return bounded * ~outside, outside | (own.exp() > high)


def _dropped(opinions: Opinions, threshold: float) -> Tensor:
    ids = opinions.sequence_ids
    distance = means_by_sequence(opinions.sampler - opinions.current, ids)[ids]
    return (opinions.advantages < 0) & (distance > threshold)


@torch.no_grad()
def mismatch(opinions: Opinions, correction: Correction, *, is_whole: bool) -> dict[str, Tensor]:
    """Per-token [N] and per-sequence [S] values whose means tell how far the sampler is off.

    `kl` and `k3_kl` estimate KL(sampler || trainer) (Schulman 2020), `chi2` is the mean squared
    ratio less 1. Names that begin with `_` are parts of `derived` figures.

    Args:
        opinions: when the tokens are first used.
        correction: what became of them.
        is_whole: whether no trajectory has traces in other micro-batches; a figure by sequence
            would else depend on how the step was split.
    """
    difference = log_ratio(opinions.old, opinions.sampler)
    ratio = difference.exp()
    nothing = torch.zeros_like(ratio)
    used = torch.ones_like(ratio) if correction.weights is None else correction.weights
    figures = {
        "kl": -difference,
        "k3_kl": ratio - 1 - difference,
        "chi2_token": ratio.square() - 1,
        "weight_mean": used,
        "clipped_fraction": nothing if correction.clipped is None else correction.clipped.to(ratio),
        "masked_fraction": (used == 0).to(ratio),
        "_weight_squares": used.square(),
        "_trainer": opinions.old,
        "_sampler": opinions.sampler,
    }
    if is_whole:
        whole = means_by_sequence(difference, opinions.sequence_ids).exp()
        figures["chi2_sequence"] = whole.square() - 1
    return figures


def derived(means: dict[str, float]) -> dict[str, float]:
    """Figures that are no means themselves, from the means of all tokens of a step.

    Perplexities are exp(-mean log-probability); the effective sample size is the share of the
    tokens that, equally weighted, would say as much (Kish 1965).
    """
    squares = means["_weight_squares"]
    trainer, sampler = means["_trainer"], means["_sampler"]
    return {
        "effective_sample_size": means["weight_mean"] ** 2 / squares if squares else 0.0,
        "trainer_perplexity": _exp(-trainer),
        "sampler_perplexity": _exp(-sampler),
        "perplexity_ratio": _exp(sampler - trainer),
    }


def _exp(value: float) -> float:
    return float(torch.tensor(value, dtype=torch.float64).exp())
