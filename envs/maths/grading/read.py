"""What a text could mean, most likely reading first.

`(0,1)` is a point or an interval, `1,234` a number or a list: both readings are kept, and two
answers agree if one reading of each does.
"""

import re

from agentgym.envs.maths.grading.normalize import END, TEXT, key
from agentgym.envs.maths.grading.quantities import plain_text, read_single, unmark_scales
from agentgym.envs.maths.grading.structure import is_wrapped, split_top
from agentgym.envs.maths.grading.values import (
    Choice,
    Equation,
    Interval,
    Items,
    Kind,
    Named,
    Quantity,
    Value,
    Words,
)

Readings = tuple[Value, ...]

_MAX_DEPTH = 6
_MAX_ITEMS = 64
_NAME = re.compile(
    r"(?:[A-Za-z]|\\[A-Za-z]+|[A-Za-z]+(?: [A-Za-z]+){0,3})(?:_\{?\w+\}?)?'*(?:\([\w, ]*\))?"
)
_NAMES = re.compile(r"\([A-Za-z](?:\s*,\s*[A-Za-z])+\)")
_FUNCTION = re.compile(r"\\(?:sin|cos|tan|ln|log|exp|sqrt|pi|infty|frac)(?![A-Za-z])|(?:pi|e|i)$")
_CHOICE = re.compile(r"\(?([A-Ha-h])\)|([A-H])[.:)]?|([A-H])")
_CHOICE_WITH_TEXT = re.compile(r"(?:\(([A-H])\)|([A-H])[.:)])\s*(.+)", re.DOTALL)
_CHOICE_WORD = re.compile(r"(?:answer|option|choice)\s+(?=\(?[A-H]\)?$)", re.IGNORECASE)
_EQUALS = re.compile(r"(?<![<>!\\])=")
_RELATION = re.compile(r"(<|>|\\le(?![A-Za-z])|\\ge(?![A-Za-z]))")
_UNEQUAL = re.compile(r"\\ne(?![A-Za-z])")
_COMMA = re.compile(r",|;| and | or |\\(?:text|and|or)(?![A-Za-z])")
_COMMA_AND_SPACE = re.compile(r",\s+|;| and | or ")
_UNION = re.compile(r"\\cup(?![A-Za-z])|(?<=[\])])\s*(?:U| or | and )\s*(?=[\[(])")
_OR = re.compile(r",?\s+or\s+|,\s*(?=[A-Za-z] ?(?:[<>]|\\[lg]e))")
_IN = re.compile(r"\\in(?![A-Za-z])|\s+in\s+(?=[\[(])")
_PLUS_MINUS = re.compile(r"\\(?:pm|mp)(?![A-Za-z])|\+/-|\+-")
_THOUSANDS = re.compile(r"[-+]?\s?\d{1,3}(?:,\d{3})+(?:\.\d+)?")
_MARKED = re.compile(rf"{TEXT}[^{END}]*{END}")
_MATRIX = re.compile(r"\\begin\{([pbvB]?matrix|array)\}(?:\{[clr|]*\})?(.*?)\\end\{\1\}", re.DOTALL)
_ANGLES = re.compile(r"\\langle(.+)\\rangle", re.DOTALL)


def read(text: str, depth: int = _MAX_DEPTH) -> Readings:
    """Readings of a normalized text; empty if there is nothing to read."""
    text = unmark_scales(text).strip()
    if not text or depth == 0:
        return ()
    if choice := _choice(text, depth):
        return choice
    for attempt in (_named_set, _all_but, _relation, _assignment, _union, _plus_minus, _matrix):
        if (found := attempt(text, depth)) is not None:
            return found
    return _bracketed(text, depth) or _sequence(text, depth) or read_single(text)


def _choice(text: str, depth: int) -> Readings:
    plain = _CHOICE_WORD.sub("", plain_text(text))
    if match := _CHOICE.fullmatch(plain):
        letter = next(filter(None, match.groups()))
        return (Choice(letter.upper()), Quantity(letter, None))
    if match := _CHOICE_WITH_TEXT.fullmatch(plain):
        letter = match.group(1) or match.group(2)
        if not re.match(r"[-+*/^=!]", match.group(3)):
            return (Choice(letter), *read(match.group(3), depth - 1))
    return ()


def _named_set(text: str, _: int) -> Readings | None:
    if key(text) == key(r"\mathbb{R}"):
        ends = read_single(r"-\infty"), read_single(r"\infty")
        return (Interval(*ends, (False, False)), Quantity(text, None))
    return (Words("empty set"),) if key(text) in {r"\emptyset", r"\{\}"} else None


def _assignment(text: str, depth: int) -> Readings | None:
    if (parts := split_top(text, _IN)) and len(parts) == 2 and _is_name(parts[0]):
        return read(parts[1], depth - 1)
    if _COMMA.search(text) and len(split_top(text, _COMMA)) > 1:
        return None
    parts = split_top(text, _EQUALS)
    if len(parts) < 2 or not all(parts):
        return None
    if not _is_name(parts[0]) and _is_name(parts[-1]):
        parts = parts[::-1]
    if _is_name(parts[0]):
        value = parts[-1]
        equation: Readings = (Equation(text),) if len(parts) == 2 else ()
        return (Named(key(parts[0]), read(value, depth - 1)), *equation)
    if all(_is_arithmetic(part) for part in parts):
        return read(parts[-1], depth - 1)
    return (Equation(text),)


def _is_name(text: str) -> bool:
    plain = plain_text(text)
    if _NAMES.fullmatch(plain):
        return True
    return _NAME.fullmatch(plain) is not None and not _FUNCTION.match(text)


def _is_arithmetic(text: str) -> bool:
    quantity = read_single(text)
    return isinstance(quantity[0], Quantity) and quantity[0].exact is not None


def _relation(text: str, _: int) -> Readings | None:
    if not _RELATION.search(text):
        return None
    alternatives = split_top(plain_text(text), _OR)
    if len(alternatives) > 1:
        return _all_intervals(alternatives)
    interval = _as_interval(split_top(text, _RELATION))
    return None if interval is None else (interval,)


def _all_but(text: str, _: int) -> Readings | None:
    """`x \\ne 2` leaves what is below and what is above."""
    parts = split_top(text, _UNEQUAL)
    if len(parts) != 2 or not _is_name(parts[0]) or not _is_arithmetic(parts[1]):
        return None
    low, middle, high = (read_single(end) for end in (r"-\infty", parts[1], r"\infty"))
    both = (Interval(low, middle, (False, False)), Interval(middle, high, (False, False)))
    return (Items("set", tuple((each,) for each in both)),)


def _all_intervals(texts: list[str]) -> Readings | None:
    found = [_as_interval(split_top(text, _RELATION)) for text in texts]
    intervals = [(interval,) for interval in found if interval is not None]
    return (Items("set", tuple(intervals)),) if len(intervals) == len(texts) else None


def _as_interval(parts: list[str]) -> Interval | None:
    """`0`, `<`, `x`, `\\le`, `1` and the like, in either direction."""
    if len(parts) not in (3, 5):
        return None
    if any(sign in {">", r"\ge"} for sign in parts[1::2]):
        swapped = {">": "<", r"\ge": r"\le", "<": ">", r"\le": r"\ge"}
        parts = [swapped.get(part, part) for part in parts[::-1]]
    if any(sign not in {"<", r"\le"} for sign in parts[1::2]):
        return None
    if len(parts) == 3 and _is_name(parts[0]):
        parts = [r"-\infty", "<", *parts]
    elif len(parts) == 3 and _is_name(parts[2]):
        parts = [*parts, "<", r"\infty"]
    if len(parts) != 5 or not _is_name(parts[2]):
        return None
    return Interval(
        read_single(parts[0]), read_single(parts[4]), (parts[1] != "<", parts[3] != "<")
    )


def _union(text: str, depth: int) -> Readings | None:
    parts = split_top(text, _UNION)
    if len(parts) < 2:
        return None
    items = []
    for part in parts:
        inner = [value for value in read(part, depth - 1) if not _is_point(value)]
        items.append(tuple(inner))
    return (Items("set", tuple(items)),)


def _is_point(value: Value) -> bool:
    return isinstance(value, Items) and value.kind in {"tuple", "bracket"}


def _plus_minus(text: str, depth: int) -> Readings | None:
    if len(_PLUS_MINUS.findall(text)) != 1 or len(split_top(text, _COMMA)) > 1:
        return None
    both = tuple(read(_PLUS_MINUS.sub(sign, text), depth - 1) for sign in "+-")
    return (Items("list", both),)


def _matrix(text: str, depth: int) -> Readings | None:
    if match := _ANGLES.fullmatch(text):
        return _items("vector", match.group(1), depth)
    match = _MATRIX.fullmatch(text)
    if match is None:
        return None
    rows = [row for row in re.split(r"\\\\|\\cr", match.group(2)) if row.strip()]
    cells = [[read(cell, depth - 1) for cell in row.split("&")] for row in rows[:_MAX_ITEMS]]
    if len(cells) == 1 or all(len(row) == 1 for row in cells):
        return (Items("vector", tuple(cell for row in cells for cell in row)),)
    lines = tuple((Items("vector", tuple(row)),) for row in cells)
    return (Items("matrix", lines),)


def _bracketed(text: str, depth: int) -> Readings:
    if text.startswith(r"\{") and text.endswith(r"\}") and is_wrapped(text[1:-2] + "}"):
        inner = text[2:-2]
        return () if re.search(r"\\mid|:|\|", inner) else _items("set", inner, depth)
    if not is_wrapped(text):
        return ()
    opened, inner, closed = text[0], text[1:-1].strip(), text[-1]
    parts = split_top(inner, re.compile(","))
    if opened == "{" and closed == "}":
        return _items("set", inner, depth) if len(parts) > 1 else read(inner, depth - 1)
    if len(parts) == 1:
        return read(inner, depth - 1) if (opened + closed) in {"()", "[]"} else ()
    return _tuple_or_interval(opened + closed, parts, depth)


def _tuple_or_interval(brackets: str, parts: list[str], depth: int) -> Readings:
    found: list[Value] = []
    items = tuple(read(part, depth - 1) for part in parts[:_MAX_ITEMS])
    if brackets in {"()", "[]"}:
        found.append(Items("tuple" if brackets == "()" else "bracket", items))
    if len(parts) == 2:
        includes = (brackets[0] == "[", brackets[1] == "]")
        found.append(Interval(items[0], items[1], includes))
    return tuple(found)


def _items(kind: Kind, inner: str, depth: int) -> Readings:
    parts = split_top(inner, _separator(inner))
    return (Items(kind, tuple(read(part, depth - 1) for part in parts[:_MAX_ITEMS])),)


def _separator(text: str) -> re.Pattern[str]:
    """Commas; only those with a space where others group thousands."""
    grouped = re.search(r"\d,\d{3}(?!\d)", text) and re.search(r",\s", text)
    return _COMMA_AND_SPACE if grouped else _COMMA


def _sequence(text: str, depth: int) -> Readings:
    text = _unmark_words(text)
    parts = split_top(text, _separator(text))
    parts = [part for part in parts if part]
    if len(parts) < 2:
        return ()
    listed = Items("list", tuple(read(part, depth - 1) for part in parts[:_MAX_ITEMS]))
    number = read_single(text) if _THOUSANDS.match(_MARKED.sub(" ", text).strip()) else ()
    exact = [q for q in number if isinstance(q, Quantity) and q.exact is not None]
    return (*exact, listed)


def _unmark_words(text: str) -> str:
    """`and` and `or` set as text separate like any others."""
    return re.sub(rf"{TEXT}\s*(,?\s*(?:and|or),?)\s*{END}", r" \1 ", text)
