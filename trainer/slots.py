"""The data loader Hugging Face's loop iterates over: it counts, it carries nothing.

Tasks and seeds follow from the optimizer step alone, so there is no data to load, to shuffle, to
shard over ranks or to skip on resume.
"""

from typing import Any

from torch.utils.data import DataLoader, Dataset


class _Slots(Dataset[dict[str, Any]]):
    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {}


def slot_loader(count: int) -> "DataLoader[dict[str, Any]]":
    """A loader of `count` empty micro-batches, the same on every rank."""
    return DataLoader(_Slots(count), batch_size=1, collate_fn=lambda _: {})
