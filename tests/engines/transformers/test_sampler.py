"""The distribution sampled from is the one transformers defines, and the one that is reported."""

import random
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from agentgym.engines.base import Sampling
from agentgym.engines.transformers.requests import Request
from agentgym.engines.transformers.sampler import sample, shape_logits
from agentgym.engines.worker import Reply

VOCABULARY = 40
settings = st.builds(
    Sampling,
    max_tokens=st.just(1),
    seed=st.integers(0, 2**63),
    temperature=st.sampled_from([0.0, 0.3, 1.0, 1.0, 2.5]),
    top_p=st.sampled_from([1.0, 1.0, 0.95, 0.5, 0.01]),
    top_k=st.sampled_from([0, 0, 1, 5, 1000]),
)


def random_logits(seed: int, rows: int) -> torch.Tensor:
    return 4 * torch.randn(rows, VOCABULARY, generator=torch.Generator().manual_seed(seed))


def theirs(logits: torch.Tensor, sampling: Sampling) -> torch.Tensor:
    """[1, V] what transformers' own warpers make of one row."""
    if sampling.temperature == 0.0:
        return logits
    ids = torch.zeros(1, 1, dtype=torch.long)
    logits = TemperatureLogitsWarper(sampling.temperature)(ids, logits)
    if sampling.top_k:
        logits = TopKLogitsWarper(sampling.top_k)(ids, logits)
    if sampling.top_p < 1.0:
        logits = TopPLogitsWarper(sampling.top_p)(ids, logits)
    return logits


async def requests_with(samplings: Sequence[Sampling]) -> list[Request]:
    prompt = np.array([1])
    return [Request(prompt, sampling, "s", 1, Reply()) for sampling in samplings]


@given(st.lists(settings, min_size=1, max_size=6), st.integers(0, 1000))
def test_each_row_gets_its_own_settings(samplings: list[Sampling], seed: int) -> None:
    """Whatever the mix: a row must not see that its neighbour is truncated or greedy."""
    logits = random_logits(seed, len(samplings))
    shaped = shape_logits(logits, samplings).softmax(dim=-1)

    for row, sampling in enumerate(samplings):
        expected = theirs(logits[row : row + 1], sampling).softmax(dim=-1)[0]
        torch.testing.assert_close(shaped[row], expected, atol=1e-6, rtol=1e-5)


async def test_tokens_come_as_often_as_their_probability() -> None:
    """20,000 draws with different seeds; bound of 5 standard deviations per token."""
    draws = 20_000
    logits = random_logits(1, 1)
    sampling = [Sampling(max_tokens=1, seed=seed, temperature=1.5) for seed in range(draws)]
    tokens, logprobs = sample(logits.expand(draws, -1), await requests_with(sampling))

    expected = (logits[0] / 1.5).softmax(dim=-1)
    counts = torch.bincount(torch.tensor(tokens), minlength=VOCABULARY)
    deviation = (counts - draws * expected).abs() / (draws * expected * (1 - expected)).sqrt()
    assert deviation.max() < 5
    torch.testing.assert_close(torch.tensor(logprobs), expected.log()[tokens], atol=1e-5, rtol=0)


@pytest.mark.parametrize("draw", [0.0, 1.0 - 2.0**-24])
async def test_the_ends_of_the_unit_interval_never_give_an_impossible_token(draw: float) -> None:
    """With top-k the first and the last ids have probability 0."""

    class Fixed(random.Random):
        def getrandbits(self, bits: int) -> int:
            return int(draw * 2**bits)

    logits = torch.zeros(50, VOCABULARY)
    logits[:, 7:12] = 5 + torch.rand(50, 5, generator=torch.Generator().manual_seed(0))
    requests = await requests_with([Sampling(max_tokens=1, seed=0, top_k=3)] * 50)
    for request in requests:
        request._random = Fixed(0)
    tokens, logprobs = sample(logits, requests)

    assert set(tokens) <= set(range(7, 12))
    assert all(-3.0 < logprob < 0.0 for logprob in logprobs)


async def test_a_temperature_near_zero_is_greedy_and_finite() -> None:
    logits = random_logits(3, 4)
    requests = await requests_with([Sampling(max_tokens=1, seed=0, temperature=1e-30)] * 4)
    tokens, logprobs = sample(logits, requests)

    assert tokens == logits.argmax(dim=-1).tolist()
    assert logprobs == [0.0] * 4


async def test_half_precision_logits_are_shaped_in_full_precision() -> None:
    logits = random_logits(4, 3).bfloat16()
    samplings = [Sampling(max_tokens=1, seed=s, temperature=0.7) for s in range(3)]
    tokens, logprobs = sample(logits, await requests_with(samplings))

    expected = (logits.float() / 0.7).log_softmax(dim=-1)[range(3), tokens]
    torch.testing.assert_close(torch.tensor(logprobs), expected, atol=1e-5, rtol=0)
