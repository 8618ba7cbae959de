"""Prompts for engines over tiny random models, and when two answers are the same."""

import random

import pytest

from agentgym.engines.base import Generation

PROMPT = list(range(3, 33))


def prompt_of(seed: int, length: int = 20) -> list[int]:
    return random.Random(seed).choices(range(64), k=length)


def assert_same(one: Generation, other: Generation) -> None:
    """Equal but for the rounding that the shape of a batch brings."""
    assert one.token_ids == other.token_ids
    assert one.logprobs == pytest.approx(other.logprobs, abs=1e-5)
    assert (one.finish_reason, one.policy_version) == (other.finish_reason, other.policy_version)
