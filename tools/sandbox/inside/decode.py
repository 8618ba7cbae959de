"""Values on their way into a sandbox, or out of it: what `encode` wrote, read with distrust."""

import json
from typing import Any, NamedTuple

MAX_DEPTH = 120
MAX_SAME_HASH = 100
_SCALARS = (type(None), bool, int, float, str)


class Opaque(NamedTuple):
    """A value that is no plain data; equal to nothing that a grader expects."""

    type: str
    shown: str
    """Its `repr`, cut."""


def loads(text: str) -> Any:
    """The value that a text stands for: plain data or `Opaque`.

    Raises:
        ValueError: it is none that `encode` writes.
    """
    try:
        return decode(parse(text))
    except (RecursionError, TypeError) as error:
        raise ValueError(f"no encoded value: {error}") from error


def parse(text: str) -> Any:
    """One JSON text, without the constants that are none.

    Raises:
        ValueError: it is something else.
    """
    try:
        return json.loads(text, parse_constant=_refuse)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def decode(data: Any, depth: int = 0) -> Any:
    """The value behind JSON data.

    Raises:
        ValueError: it is none that `encode` writes.
    """
    if depth > MAX_DEPTH:
        raise ValueError("nested too deeply")
    if isinstance(data, _SCALARS):
        return data
    if isinstance(data, list):
        return [decode(item, depth + 1) for item in data]
    if not isinstance(data, dict) or data.keys() != {"$", "v"} or data["$"] not in _READERS:
        raise ValueError(f"no encoded value: {str(data)[:100]}")
    return _READERS[data["$"]](data["v"], depth + 1)


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _items(content: Any, depth: int) -> list[Any]:
    if not isinstance(content, list):
        raise ValueError(f"a list was expected, got {type(content).__name__}")
    return [decode(item, depth) for item in content]


def _text(content: Any) -> str:
    if not isinstance(content, str):
        raise ValueError(f"a text was expected, got {type(content).__name__}")
    return content


def _keys(items: "list[Any]") -> "list[Any]":
    """Items that may be hashed: many of one hash would keep the reader busy for minutes."""
    counts: dict[int, int] = {}
    for item in items:
        found = counts[hash(item)] = counts.get(hash(item), 0) + 1
        if found > MAX_SAME_HASH:
            raise ValueError(f"more than {MAX_SAME_HASH} keys of one hash")
    return items


def _dict(content: Any, depth: int) -> dict[Any, Any]:
    pairs = _items(content, depth)
    _keys([key for key, _ in pairs])
    return dict(pairs)


def _other(content: Any, depth: int) -> Opaque:
    kind, shown = _items(content, depth)
    return Opaque(_text(kind), _text(shown))


def _complex(content: Any, depth: int) -> complex:
    real, imaginary = _items(content, depth)
    return complex(float(real), float(imaginary))


_READERS: dict[str, Any] = {
    "int": lambda content, depth: int(_text(content), 16),
    "float": lambda content, depth: float(_text(content)),
    "bytes": lambda content, depth: bytes.fromhex(_text(content)),
    "complex": _complex,
    "tuple": lambda content, depth: tuple(_items(content, depth)),
    "set": lambda content, depth: set(_keys(_items(content, depth))),
    "frozenset": lambda content, depth: frozenset(_keys(_items(content, depth))),
    "dict": _dict,
    "other": _other,
}
