"""Units of measure: enough to convert between the usual ones; other words count things."""

import re
from dataclasses import dataclass
from fractions import Fraction

_BASE: dict[str, tuple[str, str, Fraction]] = {}


def _add(dimension: str, factor: Fraction | int, *names: str) -> None:
    for name in names:
        _BASE[name] = (name, dimension, Fraction(factor))


_add("length", Fraction(1, 1000), "mm", "millimeter", "millimetre")
_add("length", Fraction(1, 100), "cm", "centimeter", "centimetre")
_add("length", 1, "m", "meter", "metre")
_add("length", 1000, "km", "kilometer", "kilometre")
_add("length", Fraction(254, 10000), "in", "inch", "inche")
_add("length", Fraction(3048, 10000), "ft", "foot", "feet")
_add("length", Fraction(9144, 10000), "yd", "yard")
_add("length", Fraction(1609344, 1000), "mi", "mile")
_add("mass", Fraction(1, 10**6), "mg", "milligram")
_add("mass", Fraction(1, 1000), "g", "gram")
_add("mass", 1, "kg", "kilogram")
_add("time", 1, "s", "sec", "second")
_add("time", 60, "min", "minute")
_add("time", 3600, "h", "hr", "hour")
_add("time", 86400, "day")
_add("time", 7 * 86400, "week")
_add("volume", Fraction(1, 1000), "ml", "milliliter", "millilitre")
_add("volume", 1, "l", "liter", "litre")
_add("money", 1, "dollar", "usd")
_add("money", Fraction(1, 100), "cent")
_add("euro", 1, "euro", "eur")
_add("angle", 1, "degree", "deg")
_SHORT = {name: parts for name, parts in _BASE.items() if len(name) <= 3}
_POWERS = {"square": 2, "sq": 2, "cubic": 3}
_FACTOR = re.compile(
    r"(?:(square|sq|cubic)\.? +)?([A-Za-z]+)\.?(?: ?\^ ?\{?(-?\d)\}?| (squared|cubed))?"
)


@dataclass(frozen=True, slots=True)
class Unit:
    """A product of powers of dimensions, and its size in the base units."""

    dimensions: tuple[tuple[str, int], ...]
    factor: Fraction


def parse_unit(text: str) -> Unit | None:
    """The unit of this name, such as `km/h`, `square feet` or `m^{2}`; `None` if it is no unit."""
    powers: dict[str, int] = {}
    factor = Fraction(1)
    for number, side in enumerate(re.split(r"/| per ", text.strip())):
        for part in re.split(r"\\cdot|\*", side):
            found = _factor(part.strip())
            if found is None:
                return None
            dimension, size, power = found
            power = -power if number else power
            powers[dimension] = powers.get(dimension, 0) + power
            factor *= size**power
    return Unit(tuple(sorted(item for item in powers.items() if item[1])), factor)


def _factor(text: str) -> tuple[str, Fraction, int] | None:
    match = _FACTOR.fullmatch(text)
    if match is None:
        return None
    before, name, exponent, after = match.groups()
    base = _SHORT.get(name) or _BASE.get(name.lower()) or _BASE.get(name.lower().removesuffix("s"))
    if base is None:
        return None
    power = int(exponent or {"squared": 2, "cubed": 3}.get(after or "", 1))
    return base[1], base[2], power * _POWERS.get(before or "", 1)
