"""Cuts a text at the signs that are outside of all brackets."""

import re

_OPEN, _CLOSE = "([{", ")]}"


def split_top(text: str, separator: re.Pattern[str]) -> list[str]:
    """Parts between separators outside of brackets, stripped; separators in groups are kept."""
    depths = _depths(text)
    parts: list[str] = []
    start = 0
    for match in separator.finditer(text):
        if depths[match.start()] == 0 and match.start() >= start:
            parts.append(text[start : match.start()].strip())
            parts += [group.strip() for group in match.groups() if group is not None]
            start = match.end()
    return [*parts, text[start:].strip()]


def is_wrapped(text: str) -> bool:
    """Whether the first bracket is closed by the last character and not before."""
    if len(text) < 2 or text[0] not in _OPEN or text[-1] not in _CLOSE:
        return False
    depths = _depths(text)
    return all(depth > 0 for depth in depths[1 : len(text) - 1]) and depths[-1] == 0


def _depths(text: str) -> list[int]:
    """Brackets open before each character, and at the end.

    Braces written as `\\{` count like the others; half-open intervals close with any bracket.
    """
    depth, depths = 0, []
    for char in text:
        if char in _CLOSE:
            depth -= 1
        depths.append(depth)
        if char in _OPEN:
            depth += 1
    return [*depths, depth]
