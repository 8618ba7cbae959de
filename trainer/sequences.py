"""Means over the sequences of a micro-batch whose tokens lie in one flat vector."""

import torch
from torch import Tensor


def means_by_sequence(values: Tensor, sequence_ids: Tensor, sizes: Tensor | None = None) -> Tensor:
    """[S]; 0 for a number that no token carries.

    Args:
        values: [N].
        sequence_ids: [N] int64 in 0..S-1.
        sizes: [S] tokens of each sequence; by default those in `values`.
    """
    count = (torch.bincount(sequence_ids) if sizes is None else sizes).to(values)
    return torch.zeros_like(count).index_add(0, sequence_ids, values) / count.clamp(min=1)
