"""From logits to the log-probabilities of chosen tokens, without holding what is not needed.

Units: nats. [N] tokens, [V] vocabulary.
"""

from typing import Any

import torch
from torch import Tensor

_CHUNK_CPU, _CHUNK_GPU = 1 << 20, 1 << 26
"""Logits turned into float32 probabilities at once: what a cache holds, what fills a GPU."""


def selected_logprobs(
    logits: Tensor, targets: Tensor, *, temperature: float = 1.0, with_entropy: bool = False
) -> tuple[Tensor, Tensor | None]:
    """[N] log-probabilities of the targets under softmax(logits / temperature), [N] its entropy.

    Computed in float32 whatever the logits are, some tokens at a time: besides the logits and
    their gradient no [N, V] tensor is held. The entropy has no gradient.

    Args:
        logits: [N, V].
        targets: [N] int64.
        with_entropy: else it is None.
    """
    apply: Any = _Selection.apply
    logprobs, entropy = apply(logits, targets, temperature, with_entropy)
    return logprobs, entropy if with_entropy else None


class _Selection(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, targets: Tensor, temperature: float, with_entropy: bool
    ) -> tuple[Tensor, Tensor]:
        logprobs, normaliser, entropy = (
            logits.new_zeros(len(logits), dtype=torch.float32) for _ in range(3)
        )
        for part in _chunks(logits):
            scaled = _scaled(logits[part], temperature)
            every = scaled.log_softmax(-1)
            normaliser[part] = scaled[:, 0] - every[:, 0]
            logprobs[part] = every.gather(1, targets[part, None])[:, 0]
            if with_entropy:
                entropy[part] = -(every.exp() * every).sum(-1)
        ctx.save_for_backward(logits, targets, normaliser)
        ctx.temperature = temperature
        ctx.mark_non_differentiable(entropy)
        return logprobs, entropy

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        logits, targets, normaliser = ctx.saved_tensors
        result = torch.empty_like(logits)
        for part in _chunks(logits):
            incoming = gradients[0][part, None] / ctx.temperature
            log_softmax = _scaled(logits[part], ctx.temperature) - normaliser[part, None]
            softmax = log_softmax.exp_().mul_(-incoming)
            result[part] = softmax.scatter_add_(1, targets[part, None], incoming)
        return result, None, None, None


def _scaled(logits: Tensor, temperature: float) -> Tensor:
    return logits.float() if temperature == 1.0 else logits.float() / temperature


def _chunks(logits: Tensor) -> list[slice]:
    elements = _CHUNK_CPU if logits.device.type == "cpu" else _CHUNK_GPU
    step = max(1, elements // logits.shape[1])
    return [slice(start, start + step) for start in range(0, len(logits), step)]
