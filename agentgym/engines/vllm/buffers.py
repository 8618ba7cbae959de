"""Many tensors in one run of bytes, the same on both sides of a transfer."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    import torch

ALIGNMENT = 64


class Entry(TypedDict):
    """Where a tensor lies; goes over the wire as JSON."""

    name: str
    dtype: str
    shape: list[int]
    offset: int
    """In bytes."""


def lay_out(tensors: Mapping[str, Any]) -> tuple[list[Entry], int]:
    """A place for every tensor, and the number of bytes in all."""
    entries: list[Entry] = []
    end = 0
    for name, tensor in tensors.items():
        start = -(-end // ALIGNMENT) * ALIGNMENT
        dtype = str(tensor.dtype).removeprefix("torch.")
        entries.append(Entry(name=name, dtype=dtype, shape=list(tensor.shape), offset=start))
        end = start + tensor.numel() * tensor.element_size()
    return entries, end


def views(buffer: "torch.Tensor", entries: list[Entry]) -> dict[str, "torch.Tensor"]:
    """The tensors in a buffer, without a copy.

    Args:
        buffer: [bytes] uint8.
        entries: as `lay_out` made them.

    Raises:
        ValueError: an entry reaches beyond the buffer or has an unknown dtype.
    """
    return {entry["name"]: _view(buffer, entry) for entry in entries}


def _view(buffer: "torch.Tensor", entry: Entry) -> "torch.Tensor":
    import math

    import torch

    dtype = vars(torch).get(entry["dtype"])
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"{entry['name']}: no such dtype: {entry['dtype']!r}")
    shape, start = entry["shape"], entry["offset"]
    end = start + math.prod(shape) * dtype.itemsize
    if min(start, *shape, 0) < 0 or end > len(buffer):
        raise ValueError(f"{entry['name']}: bytes {start} to {end} of {len(buffer)}")
    return buffer[start:end].view(dtype).view(shape)


def fill(buffer: "torch.Tensor", tensors: Mapping[str, Any], entries: list[Entry]) -> None:
    """Copy tensors, of any device, to their places."""
    for name, place in views(buffer, entries).items():
        place.copy_(tensors[name].detach())
