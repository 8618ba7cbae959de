"""What a loss is given, and what it gives.

Flat means that the tokens of all sequences of a micro-batch lie in one vector and only trained
tokens are in it: there is no mask that a NaN could slip through. Sums are divided by counts of the
whole optimizer step (`Normalizer`), so the losses of its micro-batches add up to the loss of the
whole and the update does not depend on how the step was split.

Units: log-probabilities in nats; [N] trained tokens, [S] sequences.
"""

from dataclasses import dataclass, field
from typing import Literal, Self

import torch
from torch import Tensor

ImportanceLevel = Literal["token", "sequence"]


@dataclass(frozen=True)
class FlatTokens:
    """The trained tokens of one micro-batch, sequence after sequence."""

    logprobs: Tensor
    """[N] of the current policy, with gradient."""
    old_logprobs: Tensor
    """[N] of the policy the ratio is taken against; no gradient."""
    advantages: Tensor
    """[N]."""
    sequence_ids: Tensor
    """[N] int64 in 0..S-1: which sequence of this micro-batch a token belongs to."""
    ref_logprobs: Tensor | None = None
    """[N] of the reference policy; needed if `beta` is not 0."""
    entropy: Tensor | None = None
    """[N] in nats, for the metrics only."""
    sequence_sizes: Tensor | None = None
    """[S] trained tokens of each sequence, if some of them are in other micro-batches: a trajectory
    of several traces. Never with sequence ratios or a loss from a plugin, which see it whole."""
    weights: Tensor | None = None
    """[N] factors of the tokens' losses, no gradient: what `agentgym.trainer.corrections` makes of
    the sampler's log-probabilities. A loss from a plugin applies them itself."""
    kl_weights: Tensor | None = None
    """[N] those of the tokens' KL terms, where they are others."""

    @classmethod
    def from_rows(
        cls, logprobs: Tensor, old_logprobs: Tensor, *, advantages: Tensor, mask: Tensor
    ) -> Self:
        """From padded rows; what is masked is left out before anything is computed with it.

        Args:
            logprobs: [B, T] with gradient; may hold anything where the mask is false.
            old_logprobs: [B, T].
            advantages: [B].
            mask: [B, T] true on trained tokens.
        """
        mask = mask.bool()
        rows = mask.nonzero()[:, 0]
        return cls(
            logprobs=logprobs[mask],
            old_logprobs=old_logprobs[mask],
            advantages=advantages[rows],
            sequence_ids=torch.unique(rows, return_inverse=True)[1],
        )


@dataclass(frozen=True)
class LossSettings:
    """What is optimised; names and meanings as in TRL's `GRPOConfig`."""

    loss_type: str = "dapo"
    """A name in `agentgym.registry.LOSSES`."""
    importance_level: ImportanceLevel = "token"
    """Ratio per token, or one per sequence: its geometric mean (GSPO, arXiv 2507.18071)."""
    epsilon_low: float = 0.2
    """The ratio is clipped at 1 - epsilon_low."""
    epsilon_high: float = 0.2
    """The ratio is clipped at 1 + epsilon_high; above epsilon_low is clip-higher (2503.14476)."""
    beta: float = 0.0
    """Weight of the KL divergence to the reference."""
    max_completion_tokens: int = 1024
    """Denominator of `dr_grpo`: trained tokens a trajectory may have at most."""
    delta: float | None = None
    """Upper bound of the ratio in the unclipped branch, for negative advantages (2505.07291)."""
    use_bias_correction_kl: bool = False
    """Multiply the KL term by the ratio, for an unbiased gradient (DeepSeek-V3.2, equation
    7)."""


@dataclass(frozen=True)
class Normalizer:
    """Counts of the whole optimizer step: over all micro-batches and ranks.

    Trajectories left out of the forward pass because their advantage is 0 still count; sequences
    without a trained token do not.
    """

    num_tokens: int
    """Trained tokens."""
    num_sequences: int
    """Sequences with at least one trained token."""


@dataclass(frozen=True)
class Mean:
    """A mean that can be put together exactly from the means of its parts."""

    total: Tensor
    """[] sum, detached."""
    count: int

    @classmethod
    def of(cls, values: Tensor) -> Self:
        """Of [M] values."""
        return cls(values.detach().sum(), values.numel())

    def __add__(self, other: Self) -> "Mean":
        return Mean(self.total + other.total, self.count + other.count)

    @property
    def value(self) -> float:
        """NaN over nothing."""
        return self.total.item() / self.count if self.count else float("nan")


@dataclass(frozen=True)
class LossOutput:
    """Loss of a micro-batch and what to log about it."""

    loss: Tensor
    """[] with gradient; the sum over the micro-batches and ranks is the loss of the step."""
    metrics: dict[str, Mean] = field(default_factory=dict)
    """By TRL's names: `clip_ratio/low_mean`, `clip_ratio/high_mean`, `clip_ratio/region_mean`,
    `ratio_mean`, and if given `kl`, `entropy`. Add them up over micro-batches and ranks."""
    extremes: dict[str, float] = field(default_factory=dict)
    """`clip_ratio/low_min` and `clip_ratio/high_max` over sequences; take min and max."""
    num_tokens: int = 0
    """Trained tokens of this micro-batch. If the step has none the loss is 0: do not step."""
