"""The trace: what was sampled, in order, and nothing else, reaches the loss."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from agentgym.tokens import Segment, TokenTrace

ids = st.lists(st.integers(0, 500), min_size=1, max_size=6).map(tuple)
sources = st.sampled_from(["template", "sampled", "env", "injected"])


def segment(source: str, tokens: tuple[int, ...]) -> Segment:
    if source == "sampled":
        logprobs = tuple(-0.5 - i for i in range(len(tokens)))
        return Segment(ids=tokens, source="sampled", logprobs=logprobs, policy_version=0)
    return Segment(ids=tokens, source=source)


segments = st.lists(st.builds(segment, sources, ids), max_size=8)


@given(segments)
def test_mask_selects_exactly_what_the_policy_sampled(parts: list[Segment]):
    """Whatever the order of sources, the masked tokens are the sampled ones."""
    trace = TokenTrace(parts)

    chosen = [token for token, own in zip(trace.ids, trace.mask, strict=True) if own]
    assert chosen == [t for part in parts if part.source == "sampled" for t in part.ids]
    assert trace.num_sampled == len(chosen)


@given(segments)
def test_ids_mask_and_logprobs_have_one_length(parts: list[Segment]):
    """Three views of one list of segments cannot drift apart."""
    trace = TokenTrace(parts)

    assert len(trace) == len(trace.ids) == len(trace.mask) == len(trace.logprobs)
    assert all(
        (logprob != 0.0) == own for logprob, own in zip(trace.logprobs, trace.mask, strict=True)
    )


@given(segments, segments)
def test_appending_never_changes_what_is_there(first: list[Segment], second: list[Segment]):
    """The prompt of a later turn extends the earlier one exactly."""
    trace = TokenTrace(first)
    before = list(trace.ids)
    for part in second:
        trace.append(part)

    assert trace.ids[: len(before)] == before


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"logprobs": (-0.1, -0.2, -0.3)}, ["4 tokens", "4 logprobs", "got 3"]),
        ({"logprobs": (-0.1, math.nan, -0.2, -0.3)}, ["finite"]),
        ({"logprobs": (-0.1,) * 4, "policy_version": None}, ["policy_version"]),
        ({"source": "env", "logprobs": (-0.1,) * 4}, ["env segment", "0 logprobs"]),
    ],
)
def test_a_segment_that_does_not_add_up_is_refused(fields: dict[str, object], words: list[str]):
    """A logprob short is an error with both figures, never padding."""
    values = {"ids": (1, 2, 3, 4), "source": "sampled", "policy_version": 0, **fields}

    with pytest.raises(ValidationError) as caught:
        Segment(**values)
    assert all(word in str(caught.value) for word in words)
