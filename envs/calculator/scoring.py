"""Reads a final message: is it in the asked form, and which one number does it give?

A reply earns `correct` for one answer only, so several candidates are as good as none.
"""

import re
from fractions import Fraction

_NUMBER = r"[-\u2212]?(?:\d{1,3}(?:,\d{3})+|\d{1,60})(?:\.\d{1,60})?"
_EXACT = re.compile(rf"Answer: {_NUMBER}")
_MARKED = re.compile(rf"answer\W{{0,8}}?:\W{{0,8}}?({_NUMBER})\W{{0,8}}$", re.IGNORECASE)
_ANY = re.compile(rf"(?<![\w.]){_NUMBER}(?![\w.]?\w)")


def has_exact_form(text: str) -> bool:
    """True for `Answer: 42` and nothing around it but white space."""
    return _EXACT.fullmatch(text.strip()) is not None


def read_answer(text: str) -> Fraction | None:
    """The one number given as the answer; `None` if there is none or more than one.

    It is the number after the only `Answer:`, which must end the text, or the only number there is.
    """
    if text.lower().count("answer:") == 1 and (marked := _MARKED.search(text.strip())):
        return _to_number(marked.group(1))
    numbers = _ANY.findall(text)
    return _to_number(numbers[0]) if len(numbers) == 1 else None


def _to_number(text: str) -> Fraction:
    return Fraction(text.replace(",", "").replace("\u2212", "-"))
