"""Trajectories to rows the model computes: no padding, shared prompts once.

A packed row is a run of spans without a single padding token: a prompt, then the trajectories that
continue it, then the next prompt. Positions go on where the prompt ends and `blocks` say who
attends to whom, so every token sees what it would see in a row of its own, and attention costs
what it would cost there, less for the prompt: no masked area is computed. Which tokens are scored
travels as flat indices beside the row.

Units: tokens. [R, T] rows, [N] trained tokens, [S] sequences of the micro-batch.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from agentgym.trainer.attention import Blocks, Span, blocks_of


@dataclass(frozen=True)
class Sample:
    """One trace to train on: a trajectory, or one of several where its history was rewritten.

    Raises:
        ValueError: the lists differ in length, or the first token is to be trained although
            nothing predicts it.
    """

    ids: Sequence[int]
    """[T] every token."""
    mask: Sequence[bool]
    """[T] True on trained tokens."""
    logprobs: Sequence[float]
    """[T] of the sampler, in nats; ignored where the mask is False."""
    advantage: float
    group: str | int
    """Only samples of one group share a prompt."""
    index: int
    """The caller's number for the trajectory; comes back in `PackedBatch.sample_indices`. Samples
    with the same number are one sequence to the loss."""
    sequence_size: int | None = None
    """Trained tokens of the trajectory over all its traces; by default those of this one."""

    def __post_init__(self) -> None:
        if not len(self.ids) == len(self.mask) == len(self.logprobs):
            raise ValueError(
                f"sample {self.index} has {len(self.ids)} ids, {len(self.mask)} mask entries and "
                f"{len(self.logprobs)} logprobs: it needs one of each per token"
            )
        if self.mask and self.mask[0]:
            raise ValueError(f"sample {self.index}: nothing predicts its first token")

    @cached_property
    def trained(self) -> list[int]:
        """Positions of the trained tokens."""
        return [position for position, flag in enumerate(self.mask) if flag]

    @property
    def prompt_len(self) -> int:
        """Tokens before the first trained one: what may be shared."""
        return self.trained[0] if self.trained else len(self.ids)

    @property
    def num_trained(self) -> int:
        return len(self.trained)

    @property
    def num_inputs(self) -> int:
        """Tokens to compute: nothing is learned from the last trained one on."""
        return self.trained[-1] if self.trained else 0


@dataclass(frozen=True)
class PackedBatch:
    """One micro-batch."""

    input_ids: Tensor
    """[R, T] int64."""
    position_ids: Tensor
    """[R, T] int64: the position within the trajectory."""
    rows: Tensor
    """[N] int64: row of the logit that predicts the trained token."""
    columns: Tensor
    """[N] int64: its column, that of the token before."""
    targets: Tensor
    """[N] int64: the trained token."""
    sequence_ids: Tensor
    """[N] int64 in 0..S-1."""
    advantages: Tensor
    """[N] float32."""
    old_logprobs: Tensor
    """[N] float32: the sampler's."""
    sample_indices: Tensor
    """[S] int64: `Sample.index` of each sequence."""
    sequence_sizes: Tensor
    """[S] int64: trained tokens of each sequence, those in other micro-batches included."""
    blocks: Blocks | None = None
    """Who attends to whom in the one packed row; None for plain rows."""
    attention_mask: Tensor | None = None
    """[R, T] int64, 0 on the padding of plain rows; None for a packed row."""

    @property
    def num_tokens(self) -> int:
        """Trained tokens."""
        return self.targets.numel()

    @property
    def num_sequences(self) -> int:
        return self.sample_indices.numel()

    def to(self, device: torch.device | str) -> "PackedBatch":
        """On another device."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return replace(self, **{k: v.to(device) for k, v in values.items() if v is not None})


def pack(
    samples: Sequence[Sample],
    *,
    token_budget: int,
    share_prompts: bool = True,
    keep_whole: bool = True,
) -> list[PackedBatch]:
    """Micro-batches of one packed row of at most `token_budget` tokens each.

    A sample longer than the budget gets a micro-batch of its own. Samples without a trained token
    are left out: they add nothing to the loss.

    Args:
        samples: in any order.
        token_budget: input tokens of a micro-batch.
        share_prompts: compute a prompt that samples of a group share once.
        keep_whole: never part the traces of a trajectory, whatever the budget.
    """
    whole, forked = _by_trajectory(samples, keep_whole)
    parts = list(_filled(_trees(whole, share_prompts), token_budget))
    parts += [_trees(part, share_prompts) for part in _together(forked, token_budget)]
    return [_packed(part) for part in parts]


def padded(
    samples: Sequence[Sample], *, token_budget: int, keep_whole: bool = True
) -> list[PackedBatch]:
    """The plain way: one sample per row, right-padded, rows of similar length together."""
    whole, forked = _by_trajectory(samples, keep_whole)
    batches: list[list[Sample]] = []
    for sample in sorted(whole, key=lambda s: -s.num_inputs):
        if not batches or (len(batches[-1]) + 1) * batches[-1][0].num_inputs > token_budget:
            batches.append([])
        batches[-1].append(sample)
    return [_rows(batch) for batch in [*batches, *_together(forked, token_budget)]]


def _by_trajectory(
    samples: Sequence[Sample], keep_whole: bool
) -> tuple[list[Sample], list[list[Sample]]]:
    """Samples that may go anywhere, and those that must stay together."""
    traces: dict[int, list[Sample]] = {}
    trained = [sample for sample in samples if sample.trained]
    if not keep_whole:
        return trained, []
    for sample in trained:
        traces.setdefault(sample.index, []).append(sample)
    every = list(traces.values())
    whole = [sample for members in every if len(members) == 1 for sample in members]
    return whole, [members for members in every if len(members) > 1]


def _together(trajectories: Sequence[list[Sample]], token_budget: int) -> Iterator[list[Sample]]:
    """Traces of as many trajectories as fit; those of one are never parted."""
    part: list[Sample] = []
    used = 0
    for traces in trajectories:
        cost = sum(sample.num_inputs for sample in traces)
        if part and used + cost > token_budget:
            yield part
            part, used = [], 0
        part += traces
        used += cost
    if part:
        yield part


def empty_batch() -> PackedBatch:
    """One input token and nothing to train: what a rank computes while others still have work."""
    return _rows([])


class _Tree(NamedTuple):
    prompt_len: int
    """Tokens all members share; 0 if nothing is shared."""
    members: list[Sample]


def _trees(samples: Sequence[Sample], share_prompts: bool) -> list[_Tree]:
    """Samples by prompt, in order of first appearance."""
    by_prompt: dict[object, list[Sample]] = {}
    for sample in samples:
        prompt = (sample.group, tuple(sample.ids[: sample.prompt_len]))
        by_prompt.setdefault(prompt if share_prompts else id(sample), []).append(sample)
    return [
        _Tree(members[0].prompt_len if share_prompts else 0, members)
        for members in by_prompt.values()
    ]


def _filled(trees: Sequence[_Tree], token_budget: int) -> Iterator[list[_Tree]]:
    """Trees in order, cut between members where the budget is reached."""
    part: list[_Tree] = []
    used = 0
    for prompt_len, members in trees:
        tree = _Tree(prompt_len, [])
        for member in members:
            cost = member.num_inputs - (prompt_len if tree.members else 0)
            if used and used + cost > token_budget:
                yield part
                part, used, tree = [], 0, _Tree(prompt_len, [])
                cost = member.num_inputs
            if not tree.members:
                part.append(tree)
            tree.members.append(member)
            used += cost
    if part:
        yield part


class _Scored(NamedTuple):
    """Trained tokens of one sample: where they are predicted, and what."""

    sample: Sample
    columns: list[int]


def _packed(trees: Sequence[_Tree]) -> PackedBatch:
    ids: list[int] = []
    positions: list[int] = []
    spans: list[Span] = []
    scored: list[_Scored] = []
    for tree in trees:
        shared = tree.prompt_len if len(tree.members) > 1 else 0
        prompt = (len(ids), shared) if shared else None
        if prompt is not None:
            spans.append(Span(*prompt))
            ids += tree.members[0].ids[:shared]
            positions += range(shared)
        for member in tree.members:
            start = len(ids)
            columns = [_column(p - 1, start, prompt) for p in member.trained]
            scored.append(_Scored(member, columns))
            if member.num_inputs > shared:
                spans.append(Span(start, member.num_inputs - shared, prompt))
            ids += member.ids[shared : member.num_inputs]
            positions += range(shared, member.num_inputs)
    return _batch([ids], [positions], [scored], blocks=blocks_of(spans))


def _column(position: int, start: int, prompt: tuple[int, int] | None) -> int:
    """Column of a sample's token whose own span begins at `start` of the row."""
    if prompt is None:
        return start + position
    return prompt[0] + position if position < prompt[1] else start + position - prompt[1]


def _rows(samples: Sequence[Sample]) -> PackedBatch:
    width = max((sample.num_inputs for sample in samples), default=1)
    ids = [list(sample.ids[: sample.num_inputs]) for sample in samples] or [[0]]
    lengths = torch.tensor([len(row) for row in ids])
    return _batch(
        [row + [0] * (width - len(row)) for row in ids],
        [list(range(width))] * len(ids),
        [[_Scored(sample, [p - 1 for p in sample.trained])] for sample in samples],
        attention_mask=(torch.arange(width) < lengths[:, None]).long(),
    )


def _batch(
    ids: list[list[int]],
    positions: list[list[int]],
    scored: Sequence[Sequence[_Scored]],
    *,
    blocks: Blocks | None = None,
    attention_mask: Tensor | None = None,
) -> PackedBatch:
    """Put together from what each row holds."""
    sequences = [(row, entry) for row, entries in enumerate(scored) for entry in entries]
    samples = [entry.sample for _, entry in sequences]
    numbers = {index: n for n, index in enumerate(dict.fromkeys(s.index for s in samples))}
    here = Counter[int]()
    for sample in samples:
        here[sample.index] += sample.num_trained
    sizes = here | {s.index: s.sequence_size for s in samples if s.sequence_size is not None}
    counts = torch.tensor([sample.num_trained for sample in samples], dtype=torch.int64)
    rows = torch.tensor([row for row, _ in sequences], dtype=torch.int64)
    advantages = torch.tensor([sample.advantage for sample in samples], dtype=torch.float32)
    return PackedBatch(
        input_ids=torch.tensor(ids, dtype=torch.int64),
        position_ids=torch.tensor(positions, dtype=torch.int64),
        rows=rows.repeat_interleave(counts),
        columns=_integers(c for _, entry in sequences for c in entry.columns),
        targets=_integers(s.ids[p] for s in samples for p in s.trained),
        sequence_ids=_integers(numbers[s.index] for s in samples).repeat_interleave(counts),
        advantages=advantages.repeat_interleave(counts),
        old_logprobs=torch.tensor(
            [s.logprobs[p] for s in samples for p in s.trained], dtype=torch.float32
        ),
        sample_indices=_integers(iter(numbers)),
        sequence_sizes=_integers(sizes[index] for index in numbers),
        blocks=blocks,
        attention_mask=attention_mask,
    )


def _integers(values: Iterator[int]) -> Tensor:
    return torch.tensor(list(values), dtype=torch.int64)
