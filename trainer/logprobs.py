"""The one forward pass: log-probabilities of the trained tokens under any model.

Current, old and reference policy all come through `token_logprobs`, with the sampler's temperature
applied, so their ratios compare the same distribution the engine sampled from.

Units: nats. [N] trained tokens, [V] vocabulary.
"""

from typing import NamedTuple

from torch import Tensor, nn

from agentgym.trainer.packing import PackedBatch


class TokenLogprobs(NamedTuple):
    """What the forward pass says of the trained tokens."""

    logprobs: Tensor
    """[N] float32, with gradient unless disabled."""
    entropy: Tensor | None
    """[N] float32, no gradient; None unless asked for."""


def token_logprobs(
    model: nn.Module, batch: PackedBatch, *, temperature: float = 1.0, with_entropy: bool = False
) -> TokenLogprobs:
    """Log-probabilities of `batch.targets`, in that order.

    The head runs on the needed positions only. The call goes through `model` as it is, so gradient
    hooks of DDP and FSDP and PEFT adapters take part.
    """
    raise NotImplementedError


def packing_refusal(model: nn.Module) -> str | None:
    """Why packed rows would be wrong for this model, or None if they are right."""
    raise NotImplementedError
