"""Whether two readings mean the same; the same whichever comes first.

What plain arithmetic decides is decided here; the rest is asked of an algebra system, a bounded
number of times.
"""

import re
from collections.abc import Callable
from fractions import Fraction

from agentgym.envs.maths.grading.exact import Exact, same_number
from agentgym.envs.maths.grading.normalize import key
from agentgym.envs.maths.grading.read import Readings
from agentgym.envs.maths.grading.units import Unit
from agentgym.envs.maths.grading.values import (
    Choice,
    Equation,
    Interval,
    Items,
    Named,
    Quantity,
    Value,
    Words,
)

Algebra = Callable[[str, str, float], bool]
"""Asks whether two LaTeX texts are equal, within a relative tolerance."""

_UNORDERED = {"list", "set"}
_PER_CENT = Fraction(1, 100)
_DECIMAL = re.compile(r"\d+\.\d+|\.\d+")
_NOISE = 1e-9
_RELATIVE = 1e-6


class Comparison:
    """One grading; remembers nothing beyond it."""

    def __init__(self, algebra: Algebra) -> None:
        self._algebra = algebra

    def any_same(self, left: Readings, right: Readings) -> bool:
        """Whether one reading of each agrees."""
        return any(self.same(a, b) for a in left for b in right)

    def same(self, a: Value, b: Value) -> bool:
        """Whether two values are equal."""
        if isinstance(a, Named) or isinstance(b, Named):
            return self._named(a, b)
        if isinstance(a, Quantity) and isinstance(b, Quantity):
            return self._quantities(a, b)
        if isinstance(a, Items) and isinstance(b, Items):
            return self._items(a, b)
        if isinstance(a, Items) or isinstance(b, Items):
            return self._only_item(a, b) or self._only_item(b, a)
        if isinstance(a, Interval) and isinstance(b, Interval):
            return a.includes == b.includes and (
                self.any_same(a.low, b.low) and self.any_same(a.high, b.high)
            )
        if isinstance(a, Equation) and isinstance(b, Equation):
            return key(a.text) == key(b.text) or self._ask(a.text, b.text)
        if isinstance(a, Choice | Words) and isinstance(b, Choice | Words):
            return a == b
        return False

    def _named(self, a: Value, b: Value) -> bool:
        """A name need not be said; two must be the same one."""
        if isinstance(a, Named) and isinstance(b, Named) and a.name != b.name:
            return False
        left = a.values if isinstance(a, Named) else (a,)
        right = b.values if isinstance(b, Named) else (b,)
        return self.any_same(left, right)

    def _only_item(self, a: Value, b: Value) -> bool:
        """A set of one value is as good as the value."""
        if not isinstance(a, Items) or a.kind not in _UNORDERED or len(a.items) != 1:
            return False
        return self.any_same(a.items[0], (b,))

    def _quantities(self, a: Quantity, b: Quantity) -> bool:
        if a.unit and b.unit and a.unit.dimensions != b.unit.dimensions:
            return False
        if a.is_huge or b.is_huge or a.exact is None or b.exact is None:
            return self._by_algebra(a, b)
        left, right = _in_common_unit(a.exact, b.exact, a.unit, b.unit)
        if a.percent == b.percent:
            return same_number(left, right)
        part, plain = (left, right) if a.percent else (right, left)
        return same_number(part.times(_PER_CENT), plain) or (
            abs(plain.value) > 1 and same_number(part, plain)
        )

    def _by_algebra(self, a: Quantity, b: Quantity) -> bool:
        if a.unit and b.unit and a.unit.factor != b.unit.factor:
            return False
        if key(a.text) == key(b.text):
            return a.percent == b.percent
        if a.is_huge or b.is_huge:
            return False
        left, right = (f"({q.text})/100" if q.percent else q.text for q in (a, b))
        return self._ask(left, right)

    def _ask(self, a: str, b: str) -> bool:
        first, second = sorted((a, b))
        return self._algebra(first, second, _tolerance(a, b))

    def _items(self, a: Items, b: Items) -> bool:
        kinds = {a.kind, b.kind}
        if kinds == {"set"}:
            return self._within(a, b) and self._within(b, a)
        if len(a.items) != len(b.items):
            return False
        if kinds <= _UNORDERED:
            return self._matched(a, b)
        if "set" in kinds or ("matrix" in kinds and len(kinds) > 1):
            return False
        if kinds == {"tuple", "bracket"} and len(a.items) == 2:
            return False
        return all(map(self.any_same, a.items, b.items))

    def _within(self, a: Items, b: Items) -> bool:
        """Whether every item of a set is in the other, however often."""
        return all(any(self.any_same(item, other) for other in b.items) for item in a.items)

    def _matched(self, a: Items, b: Items) -> bool:
        """Whether every item of one has a partner of its own in the other."""
        left = list(b.items)
        for item in a.items:
            partner = next((i for i, other in enumerate(left) if self.any_same(item, other)), None)
            if partner is None:
                return False
            del left[partner]
        return True


def _in_common_unit(
    a: Exact, b: Exact, unit_a: Unit | None, unit_b: Unit | None
) -> tuple[Exact, Exact]:
    if unit_a is None or unit_b is None:
        return a, b
    return a.times(unit_a.factor), b.times(unit_b.factor)


def _tolerance(a: str, b: str) -> float:
    """Nothing between exact expressions; a decimal of six digits or more may be cut."""
    decimals = [len(number.replace(".", "").lstrip("0")) for number in _DECIMAL.findall(f"{a} {b}")]
    if not decimals:
        return 0.0
    digits = min(decimals)
    return max(_NOISE, min(_RELATIVE, 10.0 ** (1 - digits))) if digits >= 6 else _NOISE
