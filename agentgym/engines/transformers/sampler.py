"""Next tokens of many requests at once, each with its own settings and random numbers.

Sampling inverts the cumulative distribution at one uniform number per request. A row of the result
depends on its own logits, settings and number only, so a batch cannot change what a request samples
(up to the rounding of the model's matrix products, which may depend on the batch's shape).
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from agentgym.engines.base import Sampling
from agentgym.engines.transformers.requests import Request


def sample(logits: Tensor, requests: Sequence[Request]) -> tuple[list[int], list[float]]:
    """One token per request, and its log-probability.

    Args:
        logits: [B, V] of the next token, any float type.
        requests: [B]; each gives one random number.

    Returns:
        [B] token ids and [B] nats of the distribution sampled from (see `Generation`); a logprob
        that is not finite says that the logits were not.
    """
    logits = _allowed(logits.float(), requests)
    settings = [request.sampling for request in requests]
    logprobs = torch.log_softmax(shape_logits(logits, settings), dim=-1)
    draws = torch.tensor([request.draw() for request in requests], device=logits.device)
    tokens = _invert_cdf(logprobs, draws)
    if any(setting.temperature == 0.0 for setting in settings):
        greedy = torch.tensor([s.temperature == 0.0 for s in settings], device=logits.device)
        tokens = torch.where(greedy, logits.argmax(dim=-1), tokens)
    chosen = logprobs.gather(1, tokens[:, None])[:, 0]
    return tokens.tolist(), chosen.tolist()


def _allowed(logits: Tensor, requests: Sequence[Request]) -> Tensor:
    """[B, V] logits, of constrained requests only those of tokens that their grammar allows."""
    guided = [line for line, request in enumerate(requests) if request.guide is not None]
    if not guided:
        return logits
    masks = [request.guide.allowed() for request in requests if request.guide is not None]
    allowed = torch.from_numpy(np.stack(masks)).to(logits.device)
    logits = logits.clone()
    logits[guided] = logits[guided].masked_fill(~allowed, -torch.inf)
    return logits


def shape_logits(logits: Tensor, settings: Sequence[Sampling]) -> Tensor:
    """[B, V] logits with temperature, then top-k, then top-p applied, as transformers does.

    Greedy rows (temperature 0) stay as they are.
    """
    temperatures = [s.temperature or 1.0 for s in settings]
    if any(temperature != 1.0 for temperature in temperatures):
        scale = torch.tensor(temperatures, device=logits.device)[:, None]
        logits = (logits - logits.amax(dim=-1, keepdim=True)) / scale
    if any(s.temperature > 0.0 and (s.top_k or s.top_p < 1.0) for s in settings):
        logits = _truncate(logits, settings)
    return logits


def _truncate(logits: Tensor, settings: Sequence[Sampling]) -> Tensor:
    vocabulary = logits.shape[-1]
    free = [s.temperature == 0.0 for s in settings]
    ranks = [
        vocabulary if f else s.top_k or vocabulary for s, f in zip(settings, free, strict=True)
    ]
    masses = [2.0 if f or s.top_p == 1.0 else s.top_p for s, f in zip(settings, free, strict=True)]
    top_k = torch.tensor(ranks, device=logits.device)[:, None]
    top_p = torch.tensor(masses, device=logits.device)[:, None]

    ordered, order = logits.sort(dim=-1, descending=True, stable=True)
    ordered = ordered.masked_fill(
        torch.arange(vocabulary, device=logits.device) >= top_k, -torch.inf
    )
    probabilities = ordered.softmax(dim=-1)
    mass_before = probabilities.cumsum(dim=-1) - probabilities
    ordered = ordered.masked_fill(mass_before >= top_p, -torch.inf)
    return torch.empty_like(logits).scatter_(1, order, ordered)


def _invert_cdf(logprobs: Tensor, draws: Tensor) -> Tensor:
    """[B] first tokens whose cumulative probability exceeds the draw, so none of probability 0."""
    cumulative = logprobs.exp().cumsum(dim=-1)
    targets = (draws * cumulative[:, -1])[:, None]
    tokens = torch.searchsorted(cumulative, targets, right=True)[:, 0]
    return tokens.clamp_(max=logprobs.shape[-1] - 1)
