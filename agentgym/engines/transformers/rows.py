"""Which trajectory owns which row of the cache, and what is stored there.

A row keeps its contents when its turn ends, so that the next turn of its session starts where the
last one stopped, and any prompt can copy the prefix it shares with any row. Rows are given away in
this order: the session's own, an empty one, one of a session that is over, a new one, and last the
one whose session has waited longest.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from agentgym.engines.transformers.requests import Ids, Request


@dataclass(slots=True, eq=False)
class Row:
    """State of one row."""

    session: str | None = None
    """Owner; `None` = free to take, though what is stored may still serve as a prefix."""
    request: Request | None = None
    """The turn that runs here."""
    length: int = 0
    """Positions whose keys and values are stored."""
    planned: int = 0
    """`length` after the prefill that is under way."""
    last_used: int = 0

    @property
    def missing(self) -> int:
        """Positions that a prefill has to store."""
        return self.planned - self.length


class Prefix(NamedTuple):
    """The longest stored prefix of a prompt."""

    row: int
    length: int
    planned: int
    """Longest prefix that will be stored once the present prefill is done."""


class RowTable:
    """At most `max_rows` rows of up to `max_context` token ids."""

    def __init__(self, max_rows: int, max_context: int) -> None:
        self._max_rows = max_rows
        self._rows: list[Row] = []
        self._ids = np.zeros((max_rows, max_context), dtype=np.int64)
        self._clock = 0

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> Row:
        return self._rows[index]

    @property
    def running(self) -> list[int]:
        """Rows whose request samples, ascending."""
        return [index for index, row in enumerate(self._rows) if row.request is not None]

    @property
    def requests(self) -> list[Request]:
        """What samples, in the order of `running`."""
        return [row.request for row in self._rows if row.request is not None]

    def first_idle(self) -> int:
        """The lowest row without a request."""
        return next(index for index, row in enumerate(self._rows) if row.request is None)

    def find_prefix(self, prompt: Ids) -> Prefix:
        """What is stored of the prompt; its last token is never taken from there."""
        if not self._rows or len(prompt) == 1:
            return Prefix(0, 0, 0)
        equal = self._ids[: len(self), : len(prompt) - 1] == prompt[:-1]
        shared = np.where(equal.all(axis=1), len(prompt) - 1, equal.argmin(axis=1))
        stored = np.minimum(shared, [row.length for row in self._rows])
        planned = np.minimum(shared, [row.planned for row in self._rows])
        best = int(stored.argmax())
        return Prefix(best, int(stored[best]), int(planned.max()))

    def take(self, request: Request, prefix: Prefix) -> int | None:
        """A row for the request, or `None` if all run; its contents are the caller's to set."""
        index = self._choose(request.session, prefix)
        if index is None and len(self) < self._max_rows:
            self._rows.append(Row())
            index = len(self) - 1
        if index is None:
            index = self._least_recent(self._idle)
        if index is None:
            return None
        self._rows[index] = Row(session=request.session, request=request)
        self._ids[index, : len(request.prompt)] = request.prompt
        return index

    def settle(self, index: int) -> None:
        """The row's turn is over: keep prompt and sampled ids as a prefix for later."""
        row = self._rows[index]
        assert row.request is not None
        start, sampled = len(row.request.prompt), row.request.token_ids[:-1]
        self._ids[index, start : start + len(sampled)] = sampled
        row.length = row.planned = self.position(index)
        row.request = None
        self._clock += 1
        row.last_used = self._clock

    def position(self, index: int) -> int:
        """Position of the token that a running row feeds next."""
        request = self._rows[index].request
        assert request is not None
        return len(request.prompt) + len(request.token_ids) - 1

    def release(self, session: str) -> None:
        """The session is over."""
        for row in self._rows:
            if row.session == session:
                row.session = None

    def swap(self, one: int, other: int) -> None:
        """Exchange two rows, as the caller does with what they store."""
        self._rows[one], self._rows[other] = self._rows[other], self._rows[one]
        self._ids[[one, other]] = self._ids[[other, one]]

    def reset(self, index: int) -> None:
        """Forget a row."""
        self._rows[index] = Row()

    def clear(self) -> None:
        """Forget everything."""
        self._rows.clear()

    @property
    def _idle(self) -> list[int]:
        return [index for index, row in enumerate(self._rows) if row.request is None]

    def _choose(self, session: str, prefix: Prefix) -> int | None:
        idle = self._idle
        own = [index for index in idle if self._rows[index].session == session]
        empty = [index for index in idle if self._rows[index].length == 0]
        released = [index for index in idle if self._rows[index].session is None]
        if prefix.row in released and prefix.length:
            released = [prefix.row]
        for candidates in (own, empty):
            if candidates:
                return candidates[0]
        return self._least_recent(released)

    def _least_recent(self, candidates: list[int]) -> int | None:
        return min(candidates, key=lambda i: self._rows[i].last_used, default=None)
