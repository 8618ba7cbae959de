"""Whether an output or a value is the expected one.

Both sides are text or plain data by the time they come here: nothing of the program that made
them can take part, and nothing that it returns makes a comparison raise or run for long.
"""

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Literal

from agentgym.envs.code.grading.tests import OutputMode

ValueMode = Literal["json", "python"]
MAX_DEPTH = 64
_INTEGER = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_INFINITY = re.compile(r"([+-]?)inf(?:inity)?", re.IGNORECASE)
_SPACES = " \t\n\r\x0b\x0c\x00"
_ATOMS = (type(None), bool, int, float, str, bytes, complex)
_BOXES = (list, tuple, set, frozenset)


def same_output(
    actual: str, expected: str, *, mode: OutputMode = "exact", tol: float = 1e-6
) -> bool:
    """Whether two outputs agree, their line ends and trailing whitespace aside.

    Args:
        actual: what was printed.
        expected: what should have been.
        mode: "exact" compares lines, "tokens" words wherever the lines end, "float" words as
            numbers where both are: integers exactly, infinity with itself, NaN with nothing.
        tol: of "float"; relative, and absolute for numbers below 1.
    """
    if mode == "exact":
        return _lines(actual) == _lines(expected)
    words, wanted = actual.split(), expected.split()
    if mode == "tokens":
        return words == wanted
    pairs = zip(words, wanted, strict=False)
    return len(words) == len(wanted) and all(_same_word(a, b, tol) for a, b in pairs)


def _lines(text: str) -> list[str]:
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    lines = [line.rstrip(_SPACES) for line in text.split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    return lines


def _same_word(actual: str, expected: str, tol: float) -> bool:
    whole = [_INTEGER.fullmatch(word) is not None for word in (actual, expected)]
    if all(whole):
        return _digits(actual) == _digits(expected)
    if (sign := _infinite(expected)) is not None:
        return _infinite(actual) == sign
    if not (_NUMBER.fullmatch(actual) and _NUMBER.fullmatch(expected)):
        return actual == expected and actual.lower().lstrip("+-") != "nan"
    first, second = float(actual), float(expected)
    if math.isinf(first) or math.isinf(second):  # too large for a float
        return actual == expected
    if any(whole) and first.is_integer() and second.is_integer():
        return first == second
    return _near(first, second, tol)


def _digits(word: str) -> str:
    """An integer in one spelling."""
    digits = word.lstrip("+-").lstrip("0")
    return f"-{digits}" if word.startswith("-") and digits else digits


def _infinite(word: str) -> bool | None:
    """Whether it is minus infinity; `None` if it is finite or no number."""
    match = _INFINITY.fullmatch(word)
    return match and match[1] == "-"


def _near(first: float, second: float, tol: float) -> bool:
    """Within `tol` of each other; infinity is near itself only, NaN near nothing."""
    if not (math.isfinite(first) and math.isfinite(second)):
        return first == second and not math.isnan(first)
    return abs(first - second) <= tol * max(1.0, abs(first), abs(second))


def is_plain(value: Any, *, depth: int = MAX_DEPTH) -> bool:
    """Whether a value is of Python's own data types throughout, and not nested too deep."""
    kind = type(value)
    if kind in _ATOMS:
        return True
    if kind is dict:
        return depth > 0 and all(
            is_plain(key, depth=depth - 1) and is_plain(item, depth=depth - 1)
            for key, item in value.items()
        )
    return kind in _BOXES and depth > 0 and all(is_plain(item, depth=depth - 1) for item in value)


def same_value(
    actual: Any, expected: Any, *, mode: ValueMode = "json", tol: float | None = None
) -> bool:
    """Whether two values are the same data; what is no plain data is the same as nothing.

    Args:
        actual: what the program gave.
        expected: what it should have given.
        mode: "json" compares as JSON would write them: tuples are lists, keys are texts, sets and
            bytes are no data, and booleans are no numbers. "python" compares as `==` does.
        tol: for floats; relative, and absolute below 1. Integers are always compared exactly.
    """
    if not (is_plain(actual) and is_plain(expected)):
        return False
    if mode == "python" and tol is None:
        return bool(actual == expected)
    return _same(actual, expected, _Rules(mode == "json", tol))


class _Rules:
    """How two plain values are compared."""

    def __init__(self, as_json: bool, tol: float | None) -> None:
        self.as_json, self.tol = as_json, tol

    def kind(self, value: Any) -> str:
        """Values of different kinds are never the same."""
        kind = type(value)
        if kind is bool:
            return "bool" if self.as_json else "number"
        if kind in (int, float):
            return "number"
        if kind is tuple and self.as_json:
            return "list"
        return "set" if kind is frozenset else kind.__name__


def _same(actual: Any, expected: Any, rules: _Rules) -> bool:
    kind = rules.kind(actual)
    if kind != rules.kind(expected):
        return False
    compare = _BY_KIND.get(kind)
    if compare is not None:
        return compare(actual, expected, rules)
    if rules.as_json and kind in ("set", "bytes", "complex"):
        return False
    return bool(actual == expected)


def _same_number(actual: float, expected: float, rules: _Rules) -> bool:
    if rules.tol is None or not (isinstance(actual, float) or isinstance(expected, float)):
        return actual == expected
    try:
        first, second = float(actual), float(expected)
    except OverflowError:
        return actual == expected
    mixed = not (isinstance(actual, float) and isinstance(expected, float))
    if mixed and first.is_integer() and second.is_integer():
        return actual == expected
    return _near(first, second, rules.tol)


def _same_items(actual: Any, expected: Any, rules: _Rules) -> bool:
    pairs = zip(actual, expected, strict=False)
    return len(actual) == len(expected) and all(_same(a, b, rules) for a, b in pairs)


def _same_mapping(actual: Mapping[Any, Any], expected: Mapping[Any, Any], rules: _Rules) -> bool:
    if rules.as_json:
        given, wanted = _with_text_keys(actual), _with_text_keys(expected)
        if given is None or wanted is None:
            return False
        actual, expected = given, wanted
    return actual.keys() == expected.keys() and all(
        _same(value, expected[key], rules) for key, value in actual.items()
    )


def _with_text_keys(value: Mapping[Any, Any]) -> dict[str, Any] | None:
    """Keys as JSON writes them; `None` if two become one, or one cannot be written."""
    keys = [_key(key) for key in value]
    if None in keys or len(set(keys)) < len(keys):
        return None
    return {str(key): item for key, item in zip(keys, value.values(), strict=True)}


def _key(key: Any) -> str | None:
    if key is None or isinstance(key, bool):
        return {None: "null", True: "true", False: "false"}[key]
    if isinstance(key, int) and abs(key) >= 10**4000:
        return None
    return str(key) if isinstance(key, str | int | float) else None


_BY_KIND: dict[str, Callable[[Any, Any, _Rules], bool]] = {
    "number": _same_number,
    "list": _same_items,
    "tuple": _same_items,
    "dict": _same_mapping,
}
