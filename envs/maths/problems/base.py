"""What every kind of problem gives, and how its numbers are written."""

from fractions import Fraction
from typing import NamedTuple


class Question(NamedTuple):
    """A problem in words."""

    text: str
    answer: str
    """Exact: an integer, a fraction in lowest terms, or several of them with commas."""
    identity: str
    """Kind and numbers: equal for the same problem in other words."""


def ask(kind: str, text: str, answer: Fraction | int | str, *numbers: object) -> Question:
    """A question that is known by its kind and numbers."""
    return Question(text, str(answer), f"{kind}/{'/'.join(map(str, numbers))}")


def term(coefficient: int, symbol: str = "x") -> str:
    """`3x`, `x`, `-x`."""
    if abs(coefficient) == 1:
        return symbol if coefficient > 0 else f"-{symbol}"
    return f"{coefficient}{symbol}"


def signed(number: int) -> str:
    """What is added to something: ` + 3` or ` - 3`."""
    return f" {'-' if number < 0 else '+'} {abs(number)}"
