"""Rows and their cache, kept in step with each other."""

import torch

from agentgym.engines.local import EngineStats
from agentgym.engines.transformers.cache import SlotCache
from agentgym.engines.transformers.feed import Feed
from agentgym.engines.transformers.model import PolicyModel
from agentgym.engines.transformers.requests import Request
from agentgym.engines.transformers.rows import Prefix, RowTable

_PREFILL_TOKENS = 2048
"""Most tokens of one prefill call, padding included."""
_PREFILL_CHUNK = 512
"""Most tokens of one prompt in one call."""
_PADDING_TOKENS = 256
"""Padding that costs less than another call, whatever the rows hold."""
_IDLE_ROWS = 2
_IDLE_SHARE = 0.125
"""Idle rows among running ones that a decoding step may carry along: the greater of the two."""


class Slots:
    """Places for `max_rows` turns of up to `max_context` tokens; memory grows with what is used."""

    def __init__(self, model: PolicyModel, *, max_rows: int, max_context: int) -> None:
        self.rows = RowTable(max_rows, max_context)
        self.cache = SlotCache()
        self.stats = EngineStats()
        self.model = model
        self._max_rows = max_rows
        self._max_context = max_context

    def place(self, request: Request, prefix: Prefix) -> int | None:
        """A row for the request with the stored prefix in it, or `None` if all rows run."""
        index = self.rows.take(request, prefix)
        if index is None:
            return None
        self.grow(len(request.prompt))
        if prefix.length and prefix.row != index:
            self.cache.copy(prefix.row, index, prefix.length)
        row = self.rows[index]
        row.length, row.planned = prefix.length, len(request.prompt) - 1
        self.stats.reused_tokens += prefix.length
        self.stats.prefilled_tokens += len(request.prompt) - prefix.length
        return index

    def prefill(self, indices: list[int]) -> None:
        """Store what these rows plan to."""
        while indices := [index for index in indices if self.rows[index].missing]:
            indices.sort(key=lambda index: self.rows[index].missing, reverse=True)
            count = prefill_batch([self.rows[index].missing for index in indices])
            self._prefill_chunk(indices[:count])

    def feed(self, index: int, feed: Feed, line: int) -> None:
        """Put the next token of a running row into a line of a decoding step."""
        request = self.rows[index].request
        assert request is not None
        token = request.token_ids[-1] if request.token_ids else int(request.prompt[-1])
        feed.put(line, token, self.rows.position(index), self._base(index))

    def compact(self) -> list[int]:
        """Running rows, after moving some down if too much of a batch over them would be idle."""
        running = self.rows.running
        while _is_sparse(running):
            gap, last = self.rows.first_idle(), running[-1]
            stored = max(self.rows[gap].length, self.rows.position(last))
            self.cache.swap(gap, last, stored)
            self.rows.swap(gap, last)
            running = self.rows.running
        return running

    def grow(self, length: int) -> None:
        """Make room for every row and for `length` positions each."""
        rows, positions = self.cache.rows, self.cache.length
        if len(self.rows) > rows:
            rows = min(self._max_rows, max(8, 2 * len(self.rows)))
        if length > positions:
            positions = min(self._max_context, max(128, length + length // 2))
        self.cache.reserve(rows, positions)

    def wipe(self, index: int) -> None:
        """Forget a row, numbers included: what is not finite must not be read even if masked."""
        self.rows.reset(index)
        self.cache.wipe(index)

    def clear(self) -> None:
        """Forget every row and free the memory."""
        self.rows.clear()
        self.cache = SlotCache()

    def _prefill_chunk(self, batch: list[int]) -> None:
        """Store up to `_PREFILL_CHUNK` tokens of each row, the one that misses most first."""
        width = min(_PREFILL_CHUNK, self.rows[batch[0]].missing)
        feed = Feed.empty(len(batch), width, self.cache.padding_slot)
        for line, index in enumerate(batch):
            row = self.rows[index]
            assert row.request is not None
            end = min(row.length + width, row.planned)
            feed.put(line, row.request.prompt[row.length : end], row.length, self._base(index))
            row.length = end
        feed.run(self.model, self.cache, torch.tensor(batch))
        self.stats.prefill_calls += 1

    def _base(self, index: int) -> int:
        """Flat index of a row's first position."""
        return index * self.cache.length


def prefill_batch(missing: list[int]) -> int:
    """How many rows to prefill in one call, given what each misses, descending.

    Rows are padded to the first; a call takes on more of them while at least half of it is useful
    or the padding is small.
    """
    width = min(_PREFILL_CHUNK, missing[0])
    useful = 0
    for count, tokens in enumerate(missing):
        useful += min(width, tokens)
        total = (count + 1) * width
        if total > _PREFILL_TOKENS or total - useful > useful + _PADDING_TOKENS:
            return max(1, count)
    return len(missing)


def _is_sparse(running: list[int]) -> bool:
    if not running:
        return False
    idle = running[-1] + 1 - len(running)
    return idle > max(_IDLE_ROWS, int(len(running) * _IDLE_SHARE))
