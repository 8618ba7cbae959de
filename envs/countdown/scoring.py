"""Reads an expression that combines the given numbers, and says what its value is worth.

The calculator tool's parser computes it; what the game does not allow is refused before.
"""

import re
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction

from agentgym.envs.answers import read_answer
from agentgym.tools.calculator import evaluate
from agentgym.tools.numbers import CalculatorError, Number

_EXPRESSION = re.compile(r"[0-9+\-*/() \u00d7\u00f7\u2212]{3,200}")
_SIGNS = str.maketrans({"\u00d7": "*", "\u00f7": "/", "\u2212": "-"})
_FORBIDDEN = re.compile(r"\*\*|//|(?:^|[-+*/(]) *[-+]")
"""Powers, whole division and signs: only + - * / between two operands are allowed."""
_NEAR = 10


def read_value(answer: str | None, *, numbers: Sequence[int]) -> Number | None:
    """The exact value of the one expression given; `None` if it is none or breaks the rules.

    Args:
        answer: the final message.
        numbers: each may be used once; at least two have to be.
    """
    expression = read_answer(answer or "", _EXPRESSION)
    if expression is None:
        return None
    text = expression.translate(_SIGNS)
    used = Counter(map(int, re.findall(r"[0-9]+", text)))
    if _FORBIDDEN.search(text) or used.total() < 2 or not used <= Counter(numbers):
        return None
    try:
        return evaluate(text)
    except CalculatorError:
        return None


def closeness(value: Number | None, target: int) -> float:
    """1.0 at the target, falling linearly to 0.0 at a distance of 10."""
    if value is None:
        return 0.0
    return max(0.0, 1 - float(abs(Fraction(value) - target)) / _NEAR)
