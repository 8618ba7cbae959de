"""Keys and values of every row, in place for the whole life of a trajectory.

One flat tensor per layer and kind, [rows * length + 1, Hkv, D]: position `p` of row `r` lies at
`r * length + p`, and the last entry takes the writes of padding. A forward call writes its new
entries by index and reads the rows as a view; for the models it looks like a transformers `Cache`.
Shapes, types and devices are those of the first keys and values that come; memory grows as needed.
"""

from dataclasses import dataclass

from torch import Tensor

Rows = slice | Tensor


@dataclass(slots=True)
class _Plan:
    """Where the next forward call writes and reads."""

    rows: Rows
    """[B] rows of the batch; a slice is read without a copy."""
    slots: Tensor
    """[B * T] flat index of every new entry."""
    span: int
    """Positions to read, from 0."""


class SlotCache:
    """Memory of `rows` x `length` positions per layer."""

    def __init__(self) -> None:
        self.rows = 0
        self.length = 0
        self._plan: _Plan | None = None
        self._layers: list[list[Tensor]] = []
        """[layers][keys, values]."""

    @property
    def padding_slot(self) -> int:
        """Flat index for entries that nobody will read."""
        return self.rows * self.length

    def reserve(self, rows: int, length: int) -> None:
        """Grow to at least this size; what is stored stays."""
        rows, length = max(rows, self.rows), max(length, self.length)
        if (rows, length) == (self.rows, self.length):
            return
        for layer in self._layers:
            layer[:] = [self._grown(stored, rows, length) for stored in layer]
        self.rows, self.length = rows, length

    def plan(self, rows: Rows, slots: Tensor, span: int) -> None:
        """Say where the next forward call writes ([B * T] slots) and what it reads."""
        self._plan = _Plan(rows, slots, span)

    def copy(self, source: int, target: int, length: int) -> None:
        """Copy the first `length` positions of a row to another one."""
        for view in self._views():
            view[target, :length] = view[source, :length]

    def swap(self, one: int, other: int, length: int) -> None:
        """Exchange the first `length` positions of two rows."""
        for view in self._views():
            kept = view[one, :length].clone()
            view[one, :length] = view[other, :length]
            view[other, :length] = kept

    def wipe(self, row: int) -> None:
        """Set a row to zero."""
        for view in self._views():
            view[row] = 0.0

    def update(
        self, keys: Tensor, values: Tensor, layer_idx: int, *_: object, **__: object
    ) -> tuple[Tensor, Tensor]:
        """Store [B, Hkv, T, D] new entries and return [B, Hkv, span, D] of the whole rows.

        Called by the model's attention layers, in the form of transformers' `Cache.update`.
        """
        if layer_idx == len(self._layers):
            self._layers.append([self._empty(keys), self._empty(values)])
        stored_keys, stored_values = self._layers[layer_idx]
        return self._exchange(stored_keys, keys), self._exchange(stored_values, values)

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Part of transformers' `Cache`; positions are always given explicitly."""
        return self._plan.span if self._plan else 0

    def _exchange(self, stored: Tensor, new: Tensor) -> Tensor:
        assert self._plan is not None
        slots = self._plan.slots.to(stored.device)
        stored.index_copy_(0, slots, new.transpose(1, 2).reshape(-1, *stored.shape[1:]))
        rows = self._rows_of(stored, self.rows, self.length)[:, : self._plan.span]
        if isinstance(self._plan.rows, slice):
            return rows[self._plan.rows].transpose(1, 2)
        return rows.index_select(0, self._plan.rows.to(stored.device)).transpose(1, 2)

    def _empty(self, like: Tensor) -> Tensor:
        """Zeros, so that masked positions never hold a NaN."""
        _, heads, _, width = like.shape
        return like.new_zeros(self.rows * self.length + 1, heads, width)

    def _grown(self, stored: Tensor, rows: int, length: int) -> Tensor:
        grown = stored.new_zeros(rows * length + 1, *stored.shape[1:])
        old = self._rows_of(stored, self.rows, self.length)
        self._rows_of(grown, rows, length)[: self.rows, : self.length] = old
        return grown

    def _views(self) -> list[Tensor]:
        return [self._rows_of(t, self.rows, self.length) for layer in self._layers for t in layer]

    @staticmethod
    def _rows_of(stored: Tensor, rows: int, length: int) -> Tensor:
        return stored[:-1].view(rows, length, *stored.shape[1:])
