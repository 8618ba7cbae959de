"""Attention over packed rows: each span attends to its prompt and to itself, and nothing else.

A dense mask over a packed row pays for every masked pair, which on long rows costs more than the
padding that packing saved. So the spans of a row are gathered into small batches (`Block`), each
one ordinary call of Transformers' own SDPA function, and scattered back. Everything outside
attention works on single tokens and needs no change.

The blocks reach the layers as a keyword argument of the model's forward pass, the way Transformers
hands arguments to attention functions. Importing this module puts a function in the place of
Transformers' "sdpa" that acts on that argument and is the original where there is none.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward

BLOCKS_ARGUMENT = "tree_blocks"
"""Keyword of the model's forward pass under which the blocks travel."""

_FILL = 0.75
"""Spans shorter than this share of a block's longest one start another block."""


class Span(NamedTuple):
    """Tokens start .. start + length of a packed row, causal among themselves."""

    start: int
    length: int
    prompt: tuple[int, int] | None = None
    """Start and length of the span that every token of this one also attends to."""


class Block(NamedTuple):
    """Spans of similar length L with the same prompt of P tokens, or without any (P = 0)."""

    num_spans: int
    """B."""
    num_queries: int
    """L, the longest span's length."""
    num_keys: int
    """P + L."""
    mask: Tensor | None
    """[1, 1, L, P + L] bool, True where a query may look; None without a prompt: just causal."""


@dataclass(frozen=True)
class Blocks:
    """How attention is computed for one packed row of T tokens.

    The indices hold all blocks one after the other, so that a layer gathers and scatters once.
    Padding repeats a span's first token; no real query looks at it and its output is dropped.
    """

    blocks: tuple[Block, ...]
    queries: Tensor
    """[sum of B L] int64 positions in the row."""
    keys: Tensor
    """[sum of B (P + L)] int64."""
    inverse: Tensor
    """[T] int64: where `queries` holds the tokens of the row."""

    def to(self, device: torch.device | str) -> "Blocks":
        """On another device."""
        masked = (
            b._replace(mask=None if b.mask is None else b.mask.to(device)) for b in self.blocks
        )
        return Blocks(
            tuple(masked), self.queries.to(device), self.keys.to(device), self.inverse.to(device)
        )


def blocks_of(spans: Sequence[Span]) -> Blocks:
    """Blocks of a row whose spans cover it, one after the other."""
    buckets = list(_buckets(spans))
    queries = [_span_index(bucket) for bucket in buckets]
    keys = [
        _key_index(bucket[0].prompt, index) for bucket, index in zip(buckets, queries, strict=True)
    ]
    flat = torch.cat([index.flatten() for index in queries])
    real = torch.cat([_is_real(bucket).flatten() for bucket in buckets])
    inverse = torch.empty(int(real.sum()), dtype=torch.int64)
    inverse[flat[real]] = real.nonzero()[:, 0]
    blocks = (
        Block(len(index), index.shape[1], key.shape[1], _mask(bucket[0].prompt, index.shape[1]))
        for bucket, index, key in zip(buckets, queries, keys, strict=True)
    )
    return Blocks(tuple(blocks), flat, torch.cat([key.flatten() for key in keys]), inverse)


def _is_real(bucket: Sequence[Span]) -> Tensor:
    """[B, L] False on padding."""
    return torch.arange(bucket[0].length) < torch.tensor([span.length for span in bucket])[:, None]


def _span_index(bucket: Sequence[Span]) -> Tensor:
    """[B, L] positions in the row."""
    starts = torch.tensor([span.start for span in bucket])[:, None]
    return starts + torch.arange(bucket[0].length) * _is_real(bucket)


def _key_index(prompt: tuple[int, int] | None, index: Tensor) -> Tensor:
    """[B, P + L]: the prompt's positions before each span's own."""
    if prompt is None:
        return index
    shared = torch.arange(prompt[0], prompt[0] + prompt[1]).expand(len(index), -1)
    return torch.cat([shared, index], dim=1)


def _buckets(spans: Sequence[Span]) -> Iterator[list[Span]]:
    """Spans with the same prompt, the longest first, of similar length."""
    by_prompt: dict[tuple[int, int] | None, list[Span]] = {}
    for span in spans:
        by_prompt.setdefault(span.prompt, []).append(span)
    for same in by_prompt.values():
        bucket: list[Span] = []
        for span in sorted(same, key=lambda s: -s.length):
            if bucket and span.length < _FILL * bucket[0].length:
                yield bucket
                bucket = []
            bucket.append(span)
        yield bucket


def _mask(prompt: tuple[int, int] | None, length: int) -> Tensor | None:
    if prompt is None:
        return None
    return torch.ones(1, 1, length, prompt[1] + length, dtype=torch.bool).tril(prompt[1])


def tree_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """Transformers' SDPA attention, block by block where the forward pass was given blocks.

    Args:
        query: [1, H, T, D] for a packed row.
        key: [1, K, T, D], `value` alike.
    """
    blocks: Blocks | None = kwargs.pop(BLOCKS_ARGUMENT, None)
    if blocks is None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **kwargs)
    parts = zip(
        blocks.blocks,
        _gather(query, blocks.queries, [(b.num_spans, b.num_queries) for b in blocks.blocks]),
        _gather(key, blocks.keys, [(b.num_spans, b.num_keys) for b in blocks.blocks]),
        _gather(value, blocks.keys, [(b.num_spans, b.num_keys) for b in blocks.blocks]),
        strict=True,
    )
    outputs = [
        sdpa_attention_forward(module, q, k, v, block.mask, **kwargs)[0].flatten(0, 1)
        for block, q, k, v in parts
    ]
    return torch.cat(outputs).index_select(0, blocks.inverse)[None], None


def _gather(states: Tensor, index: Tensor, shapes: Sequence[tuple[int, int]]) -> list[Tensor]:
    """[B, H, L, D] for each shape (B, L), of [1, H, T, D]."""
    taken = states.squeeze(0).transpose(0, 1).index_select(0, index)
    parts = torch.split(taken, [num * length for num, length in shapes])
    return [
        part.view(*shape, *part.shape[1:]).transpose(1, 2)
        for part, shape in zip(parts, shapes, strict=True)
    ]


AttentionInterface.register("sdpa", tree_attention)
