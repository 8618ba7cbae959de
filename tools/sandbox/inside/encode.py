"""Values on their way out of a sandbox, as JSON that keeps Python's types apart.

Plain JSON stands for itself; everything else is `{"$": type, "v": content}`. Subclasses are taken
for what they are derived from, by the base class's own methods, so that an overridden `__eq__` or
`__iter__` has no say. What is no data becomes its type and `repr`.
"""

import json
from typing import Any

MAX_DEPTH = 100
MAX_SHOWN = 2000


class EncodingError(ValueError):
    """The value cannot leave: too large, too deep, or it contains itself."""


def dumps(value: Any, max_bytes: int) -> str:
    """The value as JSON.

    Raises:
        EncodingError: it is too large or too deep.
    """
    text = json.dumps(encode(value), allow_nan=False)
    if len(text) > max_bytes:
        raise EncodingError(f"the value takes {len(text)} bytes, {max_bytes} are allowed")
    return text


def encode(value: Any, depth: int = 0) -> Any:
    """The value as plain JSON data."""
    if depth > MAX_DEPTH:
        raise EncodingError(f"the value is nested deeper than {MAX_DEPTH}")
    if value is None or value is True or value is False:
        return value
    for base, convert in _CONVERTERS:
        if isinstance(value, base):
            return convert(value, depth + 1)
    return _foreign(value, depth)


def show(value: Any) -> str:
    """`repr`, cut; a text about it if that fails."""
    try:
        text = repr(value)
    except Exception as error:
        text = f"<{type(value).__name__}, whose repr raised {type(error).__name__}>"
    if len(text) <= MAX_SHOWN:
        return text
    return f"{text[: MAX_SHOWN // 2]} ... {text[-MAX_SHOWN // 2 :]}"


def _int(value: int, depth: int) -> Any:
    plain = int.__add__(value, 0)
    return plain if -(2**53) <= plain <= 2**53 else {"$": "int", "v": hex(plain)}


def _float(value: float, depth: int) -> Any:
    plain = float.__add__(value, 0.0) if value != 0 else float.__pos__(value)
    if plain != plain or plain in (float("inf"), float("-inf")):
        return {"$": "float", "v": float.__repr__(plain)}
    return plain


def _str(value: str, depth: int) -> Any:
    return str.__str__(value)


def _bytes(value: Any, depth: int) -> Any:
    return {"$": "bytes", "v": bytes.hex(bytes(value))}


def _complex(value: complex, depth: int) -> Any:
    return {"$": "complex", "v": [float.__repr__(value.real), float.__repr__(value.imag)]}


def _list(value: list[Any], depth: int) -> Any:
    return [encode(item, depth) for item in list.__iter__(value)]


def _tuple(value: tuple[Any, ...], depth: int) -> Any:
    return {"$": "tuple", "v": [encode(item, depth) for item in tuple.__iter__(value)]}


def _set(value: Any, depth: int) -> Any:
    kind = "set" if isinstance(value, set) else "frozenset"
    items = set.__iter__(value) if isinstance(value, set) else frozenset.__iter__(value)
    return {"$": kind, "v": [encode(item, depth) for item in items]}


def _dict(value: dict[Any, Any], depth: int) -> Any:
    pairs = [[encode(key, depth), encode(item, depth)] for key, item in dict.items(value)]
    return {"$": "dict", "v": pairs}


_CONVERTERS: tuple[tuple[Any, Any], ...] = (
    (int, _int),
    (float, _float),
    (str, _str),
    ((bytes, bytearray), _bytes),
    (complex, _complex),
    (list, _list),
    (tuple, _tuple),
    ((set, frozenset), _set),
    (dict, _dict),
)


def _foreign(value: Any, depth: int) -> Any:
    """Numpy's scalars and arrays as what they hold; anything else by its looks."""
    kind = type(value)
    if kind.__module__ == "numpy" and kind.__name__ != "ndarray" and hasattr(value, "item"):
        return encode(value.item(), depth + 1)
    if kind.__module__ == "numpy" and hasattr(value, "tolist"):
        return encode(value.tolist(), depth + 1)
    return opaque(value)


def opaque(value: Any) -> "dict[str, Any]":
    """The looks of a value, encoded."""
    kind = type(value)
    return {"$": "other", "v": [f"{kind.__module__}.{kind.__qualname__}", show(value)]}
