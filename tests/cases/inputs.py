"""Input of a case that knows what a handler has read of it, so that nothing is ignored in silence.

It is a dictionary like any other; what fails here fails the test, never the system under test: an
error raised inside a handler could be taken for the refusal that a case expects.
"""

from collections.abc import ItemsView, Iterator, Mapping, ValuesView
from typing import Any

import pytest


class Inputs(dict[str, Any]):
    """A dictionary, and dictionaries within it, that count a key as read once its value is taken.

    Asking whether there is a key does not read it; going through all of them reads them all.
    """

    def __init__(self, given: Mapping[str, Any]) -> None:
        super().__init__({key: _watched(value) for key, value in given.items()})
        self.unread = list(given)

    def __getitem__(self, key: str) -> Any:
        if key not in self:
            pytest.fail(f"the handler needs {key!r}, the case gives {', '.join(super().keys())}")
        if key in self.unread:
            self.unread.remove(key)
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        if key not in self:
            return default
        return self[key]

    def __iter__(self) -> Iterator[str]:
        self.unread.clear()
        return super().__iter__()

    def values(self) -> ValuesView[Any]:  # type: ignore[override]
        self.unread.clear()
        return super().values()

    def items(self) -> ItemsView[str, Any]:  # type: ignore[override]
        self.unread.clear()
        return super().items()


def unread(given: Any, path: str = "input") -> list[str]:
    """Paths of what no handler has read."""
    if isinstance(given, Inputs):
        inner = [(f"{path}.{key}", dict.__getitem__(given, key)) for key in dict.keys(given)]
        return [f"{path}.{key}" for key in given.unread] + _all_unread(inner)
    if isinstance(given, list):
        return _all_unread([(f"{path}[{index}]", value) for index, value in enumerate(given)])
    return []


def _all_unread(parts: list[tuple[str, Any]]) -> list[str]:
    return [found for path, value in parts for found in unread(value, path)]


def _watched(value: Any) -> Any:
    if isinstance(value, Mapping):
        return Inputs(value)
    return [_watched(item) for item in value] if isinstance(value, list) else value
