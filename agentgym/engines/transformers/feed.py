"""The input of one forward call over the cache."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from agentgym.engines.transformers.cache import Rows, SlotCache
from agentgym.engines.transformers.model import PolicyModel
from agentgym.engines.transformers.requests import Ids


@dataclass(slots=True)
class Feed:
    """Input of one forward call; padding sees position 0 of its row and is stored nowhere."""

    ids: Ids
    """[B, T]"""
    positions: Ids
    """[B, T]"""
    slots: Ids
    """[B, T] flat index in the cache."""

    @classmethod
    def empty(cls, lines: int, width: int, padding_slot: int) -> "Feed":
        shape = (lines, width)
        zeros = np.zeros(shape, dtype=np.int64)
        return cls(zeros, zeros.copy(), np.full(shape, padding_slot, dtype=np.int64))

    def put(self, line: int, ids: Ids | int, start: int, base: int) -> None:
        """Ids at positions from `start` of the row that begins at `base`."""
        width = np.size(ids)
        self.ids[line, :width] = ids
        self.positions[line, :width] = np.arange(start, start + width)
        self.slots[line, :width] = base + self.positions[line, :width]

    def run(self, model: PolicyModel, cache: SlotCache, rows: Rows) -> Tensor:
        """[B, V] logits after the last column; `rows` of the cache are the B lines of the batch."""
        positions = torch.from_numpy(self.positions).to(model.device)
        slots = torch.from_numpy(self.slots).flatten().to(model.device)
        span = int(self.positions.max()) + 1
        cache.plan(rows, slots, span)
        visible = torch.arange(span, device=model.device) <= positions[:, :, None]
        ids = torch.from_numpy(self.ids).to(model.device)
        return model.next_logits(ids, positions, visible, cache)
