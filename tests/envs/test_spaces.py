"""The space of everything that can be said."""

import pickle
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym.envs.spaces import MessageSpace
from agentgym.messages import assistant, user


@given(st.text())
def test_every_text_is_in_it(text: str) -> None:
    """Gymnasium's own text space refuses a space, a newline, or an umlaut."""
    space = MessageSpace()

    assert text in space
    assert assistant(text) in space
    assert [user(text), assistant(text)] in space


@pytest.mark.parametrize("other", [None, 3, b"x", ["x"], {"role": "user"}, [user("x"), None]])
def test_nothing_else_is(other: Any) -> None:
    """Else the checker would accept anything."""
    assert other not in MessageSpace()


def test_samples_follow_the_seed() -> None:
    """Gymnasium's checker plays sampled actions twice."""
    space, other = MessageSpace(seed=3), MessageSpace(seed=3)
    samples = [space.sample() for _ in range(5)]

    assert samples == [other.sample() for _ in range(5)]
    assert len(set(samples)) > 1
    assert all(type(sample) is str and sample in space for sample in samples)


def test_it_survives_copies() -> None:
    """Vector envs copy spaces and compare them."""
    space = MessageSpace(seed=3)

    assert deepcopy(space) == pickle.loads(pickle.dumps(space)) == MessageSpace()
    assert np.random.default_rng(0) != space
