"""What an answer can be: a quantity, several of them, an interval, a choice, words."""

from dataclasses import dataclass
from typing import Literal

from agentgym.envs.maths.grading.exact import Exact
from agentgym.envs.maths.grading.units import Unit

Kind = Literal["list", "set", "tuple", "bracket", "vector", "matrix"]


@dataclass(frozen=True, slots=True)
class Quantity:
    """An expression, perhaps with a unit; exact where it is plain arithmetic."""

    text: str
    """Without unit and per cent sign."""
    exact: Exact | None
    percent: bool = False
    unit: Unit | None = None
    is_huge: bool = False
    """A number whose digits are too many to compute."""


@dataclass(frozen=True, slots=True)
class Equation:
    """An equation that is no mere "x is"."""

    text: str


@dataclass(frozen=True, slots=True)
class Named:
    """A value with the name it was given: `x = 3`."""

    name: str
    values: "tuple[Value, ...]"
    """Readings of what was given the name."""


@dataclass(frozen=True, slots=True)
class Items:
    """Several values; those of a list or set may come in any order."""

    kind: Kind
    items: "tuple[tuple[Value, ...], ...]"
    """Readings of each."""


@dataclass(frozen=True, slots=True)
class Interval:
    """From low to high."""

    low: "tuple[Value, ...]"
    high: "tuple[Value, ...]"
    includes: tuple[bool, bool]


@dataclass(frozen=True, slots=True)
class Choice:
    """A letter that stands for an answer; upper case."""

    letter: str


@dataclass(frozen=True, slots=True)
class Words:
    """Text; lower case."""

    text: str


Value = Quantity | Equation | Named | Items | Interval | Choice | Words
