"""Packing: every trained token once, beside exactly the tokens it followed when it was sampled."""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym.trainer.packing import PackedBatch, Sample, empty_batch, pack, padded

PROMPTS = [[1, 2, 3], [1, 2, 3, 4, 5, 6], [1], [9, 8, 7, 6]]


def make_sample(prompt: list[int], rest: list[tuple[int, bool]], group: int, index: int) -> Sample:
    """A prompt and what follows it, trained or not; the advantage names the sample."""
    ids = prompt + [token for token, _ in rest]
    return Sample(
        ids=ids,
        mask=[False] * len(prompt) + [trained for _, trained in rest],
        logprobs=[-0.25 * position for position in range(len(ids))],
        advantage=index + 0.5,
        group=group,
        index=index,
    )


rest = st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=12)
sample_sets = st.lists(
    st.tuples(st.sampled_from(PROMPTS), rest, st.integers(0, 2)), max_size=10
).map(lambda rows: [make_sample(p, r, group, i) for i, (p, r, group) in enumerate(rows)])


class Trained(NamedTuple):
    """A trained token and all that the model is told about it."""

    index: int
    before: tuple[int, ...]
    target: int
    advantage: float
    logprob: float


def wanted(samples: list[Sample]) -> list[Trained]:
    """What the samples say."""
    return sorted(
        Trained(s.index, tuple(s.ids[:p]), s.ids[p], s.advantage, s.logprobs[p])
        for s in samples
        for p in range(len(s.ids))
        if s.mask[p]
    )


def found(batches: list[PackedBatch]) -> list[Trained]:
    """What the batches would compute."""
    return sorted(token for batch in batches for token in _trained(batch))


def _trained(batch: PackedBatch) -> Iterator[Trained]:
    visible = dense_mask(batch)
    for n in range(batch.num_tokens):
        row, column = int(batch.rows[n]), int(batch.columns[n])
        seen = visible[row, column].nonzero()[:, 0]
        assert batch.position_ids[row, seen].tolist() == list(range(len(seen)))
        yield Trained(
            int(batch.sample_indices[batch.sequence_ids[n]]),
            tuple(batch.input_ids[row, seen].tolist()),
            int(batch.targets[n]),
            float(batch.advantages[n]),
            float(batch.old_logprobs[n]),
        )


def dense_mask(batch: PackedBatch) -> torch.Tensor:
    """[R, T, T] bool, True where a query looks; of a packed row, put together from its blocks."""
    width = batch.input_ids.shape[1]
    if batch.blocks is None:
        assert batch.attention_mask is not None
        return batch.attention_mask.bool()[:, None] & torch.ones(width, width).tril().bool()
    dense = torch.zeros(width, width, dtype=torch.bool)
    queries = batch.blocks.queries.tolist()
    keys = batch.blocks.keys.tolist()
    real = set(batch.blocks.inverse.tolist())
    at_query = at_key = 0
    for block in batch.blocks.blocks:
        mask = torch.ones(block.num_queries, block.num_keys).tril().bool()
        if block.mask is not None:
            mask = block.mask[0, 0]
        for _ in range(block.num_spans):
            for i in range(block.num_queries):
                if at_query + i in real:
                    looks = [keys[at_key + k] for k in mask[i].nonzero()[:, 0].tolist()]
                    assert len(looks) == len(set(looks))
                    dense[queries[at_query + i], looks] = True
            at_query += block.num_queries
            at_key += block.num_keys
    assert at_query == len(queries)
    assert at_key == len(keys)
    return dense[None]


@settings(deadline=None)
@given(samples=sample_sets, budget=st.integers(1, 60), share=st.booleans())
def test_every_trained_token_sees_what_it_followed(
    samples: list[Sample], budget: int, share: bool
) -> None:
    """Whatever is shared and however it is split: same context, target, advantage, logprob."""
    batches = pack(samples, token_budget=budget, share_prompts=share)

    assert found(batches) == wanted(samples)


@settings(deadline=None)
@given(samples=sample_sets, budget=st.integers(1, 60))
def test_plain_rows_hold_the_same(samples: list[Sample], budget: int) -> None:
    """The reference for everything else."""
    assert found(padded(samples, token_budget=budget)) == wanted(samples)


@settings(deadline=None)
@given(samples=sample_sets, budget=st.integers(1, 60), share=st.booleans())
def test_budget_holds_unless_one_sample_is_longer(
    samples: list[Sample], budget: int, share: bool
) -> None:
    """A long sample is computed alone, never dropped."""
    for batch in [
        *pack(samples, token_budget=budget, share_prompts=share),
        *padded(samples, token_budget=budget),
    ]:
        assert batch.input_ids.numel() <= budget or batch.num_sequences == 1
        assert batch.num_sequences >= 1


@settings(deadline=None)
@given(samples=sample_sets)
def test_a_packed_row_holds_no_token_in_vain(samples: list[Sample]) -> None:
    """One prompt for those who share it, nothing from the last trained token on, no padding."""
    batches = pack(samples, token_budget=10_000)
    prompts = {(s.group, tuple(s.ids[: s.prompt_len])) for s in samples if s.num_trained}
    own = sum(s.num_inputs - s.prompt_len for s in samples if s.num_trained)

    assert len(batches) == bool(prompts)
    assert sum(b.input_ids.numel() for b in batches) == own + sum(len(p) for _, p in prompts)


def test_a_group_shares_its_prompt() -> None:
    """Eight completions of five tokens, one prompt of six."""
    samples = [make_sample(PROMPTS[1], [(i, True)] * 5, 0, i) for i in range(8)]
    [shared] = pack(samples, token_budget=1000)
    [alone] = pack(samples, token_budget=1000, share_prompts=False)

    assert shared.input_ids.numel() == 6 + 8 * 4
    assert alone.input_ids.numel() == 8 * 10
    assert shared.num_sequences == alone.num_sequences == 8


def test_equal_prompts_of_different_groups_are_not_shared() -> None:
    """Groups may be left out or split; what belongs together is told by the id."""
    samples = [make_sample([1, 2, 3], [(4, True)] * 3, group, group) for group in range(2)]
    [batch] = pack(samples, token_budget=1000)

    assert batch.input_ids.numel() == 2 * 5


def test_a_trajectory_that_ends_at_its_first_token() -> None:
    """Only the prompt is computed, and once for all of them."""
    samples = [make_sample([1, 2, 3], [(i, True)], 0, i) for i in range(3)]
    [batch] = pack(samples, token_budget=1000)

    assert batch.input_ids.tolist() == [[1, 2, 3]]
    assert batch.columns.tolist() == [2, 2, 2]
    assert batch.targets.tolist() == [0, 1, 2]


def test_nothing_to_train_is_no_batch() -> None:
    """All cut, all masked: the caller sees that there is no step to make."""
    masked = make_sample([1, 2], [(3, False)], 0, 0)

    assert pack([masked], token_budget=10) == padded([], token_budget=10) == []
    assert (masked.num_trained, masked.num_inputs, masked.prompt_len) == (0, 0, 3)


def test_an_empty_batch_has_one_token_and_no_target() -> None:
    """What a rank computes while the others still have work."""
    batch = empty_batch()

    assert batch.input_ids.shape == (1, 1)
    assert batch.num_tokens == batch.num_sequences == 0


def test_moving_keeps_everything() -> None:
    """Also what lies inside the blocks."""
    samples = [make_sample([1, 2, 3], [(i, True)] * 3, 0, i) for i in range(3)]
    [batch] = pack(samples, token_budget=100)
    moved = batch.to("meta")

    assert moved.blocks is not None
    assert moved.input_ids.shape == batch.input_ids.shape
    assert {moved.input_ids.device.type, moved.blocks.keys.device.type} == {"meta"}
    assert {b.mask.device.type for b in moved.blocks.blocks if b.mask is not None} == {"meta"}
    assert moved.attention_mask is None


@pytest.mark.parametrize(
    ("ids", "mask", "logprobs", "message"),
    [
        ([1, 2], [False], [0.0, 0.0], "sample 7 has 2 ids, 1 mask entries and 2 logprobs"),
        ([1, 2], [False, True], [0.0], "2 ids, 2 mask entries and 1 logprobs"),
        ([1, 2], [True, True], [0.0, 0.0], "sample 7: nothing predicts its first token"),
    ],
)
def test_a_wrong_sample_is_refused(
    ids: list[int], mask: list[bool], logprobs: list[float], message: str
) -> None:
    """Lists that do not belong together must not be trained on."""
    with pytest.raises(ValueError, match=message):
        Sample(ids=ids, mask=mask, logprobs=logprobs, advantage=0.0, group=0, index=7)


def test_placeholder_logprobs_do_not_travel() -> None:
    """What a token that is not trained says is never looked at."""
    sample = Sample(
        ids=[1, 2, 3],
        mask=[False, True, False],
        logprobs=[math.nan, -1.0, math.nan],
        advantage=1.0,
        group=0,
        index=0,
    )
    [batch] = pack([sample], token_budget=10)

    assert batch.old_logprobs.tolist() == [-1.0]


traces = st.lists(st.tuples(st.sampled_from(PROMPTS), rest), min_size=1, max_size=4)


@given(st.lists(traces, max_size=5), st.integers(1, 60), st.sampled_from(["pack", "padded"]))
def test_the_traces_of_a_trajectory_are_one_sequence(
    trajectories: list[list[tuple[list[int], list[tuple[int, bool]]]]], budget: int, way: str
):
    """However much it is over the budget: its ratio and its mean are over all its tokens."""
    samples = [
        make_sample(prompt, rest, 0, index)
        for index, members in enumerate(trajectories)
        for prompt, rest in members
    ]
    batches = (pack if way == "pack" else padded)(samples, token_budget=budget)

    assert found(batches) == wanted(samples)
    places = [int(index) for batch in batches for index in batch.sample_indices]
    assert len(places) == len(set(places)), "a trajectory is in two micro-batches"
    for batch in batches:
        assert set(batch.sequence_ids.tolist()) == set(range(batch.num_sequences))


@given(st.lists(traces, max_size=5), st.integers(1, 60), st.sampled_from(["pack", "padded"]))
def test_parted_traces_know_how_long_their_trajectory_is(
    trajectories: list[list[tuple[list[int], list[tuple[int, bool]]]]], budget: int, way: str
):
    """Within the budget, if a single trace is; the mean is still over the whole trajectory."""
    samples = [
        make_sample(prompt, rest, 0, index)
        for index, members in enumerate(trajectories)
        for prompt, rest in members
    ]
    sizes = Counter[int]()
    for sample in samples:
        sizes[sample.index] += sample.num_trained
    samples = [replace(sample, sequence_size=sizes[sample.index]) for sample in samples]
    pack_them = pack if way == "pack" else padded
    batches = pack_them(samples, token_budget=budget, keep_whole=False)

    assert found(batches) == wanted(samples)
    longest = max((sample.num_inputs for sample in samples), default=1)
    for batch in batches:
        assert batch.input_ids.numel() <= max(budget, longest)
        known = dict(zip(batch.sample_indices.tolist(), batch.sequence_sizes.tolist(), strict=True))
        assert known == {index: sizes[index] for index in known}
