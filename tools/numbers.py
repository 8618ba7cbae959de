"""Exact numbers of bounded size, for the calculator."""

import ast
import math
import operator
from collections.abc import Callable
from decimal import Context, Decimal, InvalidOperation, Overflow, Underflow
from fractions import Fraction
from typing import Any, NamedTuple

from agentgym.errors import ToolError

Number = int | Fraction

MAX_DIGITS = 4000
"""Of a whole number, and of a fraction's numerator and denominator."""
_MAX_BITS = math.floor(MAX_DIGITS * math.log2(10))
_ROOT_DIGITS = 50
_ROOTS = Context(
    prec=_ROOT_DIGITS,
    Emax=MAX_DIGITS,
    Emin=-MAX_DIGITS,
    traps=[InvalidOperation, Overflow, Underflow],
)
_MAX_DEGREE = 8
_MAX_SIMPLE = 10**6
_SHOWN_DIGITS = 15
_SHOWN = Context(prec=_SHOWN_DIGITS, Emax=10 * MAX_DIGITS, Emin=-10 * MAX_DIGITS)
_MAX_EXACT_DECIMALS = 30
_PLAIN_EXPONENTS = range(-7, 21)


class CalculatorError(ToolError):
    """The expression has no value that can be given."""


def too_large() -> CalculatorError:
    """The error of a number that would pass `MAX_DIGITS`."""
    return CalculatorError(f"a result is too large: it needs more than {MAX_DIGITS} digits")


def as_exact(text: str, parsed: object) -> Number:
    """A literal's exact value.

    Args:
        text: as it was written.
        parsed: what Python made of it.
    """
    if isinstance(parsed, int) and not isinstance(parsed, bool):
        return simplify(parsed)
    if not isinstance(parsed, float):
        raise CalculatorError(f"{text[:40]!r} is not a number")
    decimal = Decimal(text)
    if abs(decimal.adjusted()) > MAX_DIGITS:
        raise too_large()
    return simplify(Fraction(decimal))


def simplify(value: Number) -> Number:
    """The same value, as an int if it is whole.

    Raises:
        CalculatorError: it has too many digits.
    """
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > _MAX_BITS:
        raise too_large()
    return value.numerator if value.denominator == 1 else value


def format_number(value: Number) -> str:
    """Whole numbers and short decimals exactly, everything else to 15 significant digits."""
    if isinstance(value, int):
        return str(value)
    decimals = _num_decimals(value.denominator)
    if decimals is not None and decimals <= _MAX_EXACT_DECIMALS:
        scaled = f"{abs(value.numerator) * 10**decimals // value.denominator:0{decimals + 1}d}"
        return f"{'-' if value < 0 else ''}{scaled[:-decimals]}.{scaled[-decimals:]}"
    rounded = _SHOWN.divide(Decimal(value.numerator), Decimal(value.denominator)).normalize(_SHOWN)
    if rounded.adjusted() in _PLAIN_EXPONENTS:
        return f"{rounded:f}"
    return str(rounded).lower()


def _num_decimals(denominator: int) -> int | None:
    """Digits after the point that write 1/denominator exactly; `None` if no number of them does."""
    counts = []
    for factor in (2, 5):
        count = 0
        while denominator % factor == 0:
            denominator //= factor
            count += 1
        counts.append(count)
    return max(counts) if denominator == 1 else None


def _divide(left: Number, right: Number) -> Number:
    _refuse_zero(right)
    return Fraction(left) / right


def _floor_divide(left: Number, right: Number) -> Number:
    _refuse_zero(right)
    return left // right


def _modulo(left: Number, right: Number) -> Number:
    _refuse_zero(right)
    return left % right


def _refuse_zero(divisor: Number) -> None:
    if divisor == 0:
        raise CalculatorError("division by zero")


def _power(base: Number, exponent: Number) -> Number:
    if isinstance(exponent, Fraction):
        return _root(Fraction(base), exponent)
    if exponent < 0:
        _refuse_zero(base)
        base, exponent = 1 / Fraction(base), -exponent
    bits = max(abs(base.numerator), base.denominator).bit_length()
    if bits > 1 and (bits - 1) * exponent > _MAX_BITS:
        raise too_large()
    return Fraction(base) ** exponent


def _root(base: Fraction, exponent: Fraction) -> Number:
    """A fractional power to 50 digits; exact if the exact value is short."""
    if base < 0:
        raise CalculatorError("a negative number has no real fractional power")
    if base == 0:
        if exponent < 0:
            raise CalculatorError("division by zero")
        return 0
    try:
        power = _ROOTS.power(_rounded(base), _rounded(exponent))
    except (Overflow, Underflow, InvalidOperation) as error:
        raise too_large() from error
    found = Fraction(power)
    simple = found.limit_denominator(_MAX_SIMPLE)
    return simple if _is_power(simple, base, exponent) else found


def _is_power(value: Fraction, base: Fraction, exponent: Fraction) -> bool:
    """Whether the value is exactly base ** exponent; `False` where finding out costs too much."""
    root, times = exponent.denominator, exponent.numerator
    if max(root, abs(times)) > _MAX_DEGREE:
        return False
    return bool(value**root == base**times)


def _rounded(value: Fraction) -> Decimal:
    return _ROOTS.divide(Decimal(value.numerator), Decimal(value.denominator))


def _whole(value: Number, name: str) -> int:
    if isinstance(value, Fraction):
        raise CalculatorError(f"{name} needs a whole number, got {format_number(value)}")
    return value


def _factorial(value: Number) -> Number:
    n = _whole(value, "factorial")
    if n < 0:
        raise CalculatorError("factorial of a negative number")
    if n > MAX_DIGITS or math.lgamma(n + 1) / math.log(10) > MAX_DIGITS:
        raise too_large()
    return math.factorial(n)


def _round(value: Number, digits: Number = 0) -> Number:
    places = _whole(digits, "round")
    if abs(places) > MAX_DIGITS:
        raise CalculatorError(f"round to {places} digits: at most {MAX_DIGITS}")
    return round(Fraction(value), places)


class Function(NamedTuple):
    """A named function and how many arguments it takes."""

    compute: Callable[..., Number]
    fewest: int = 1
    most: int = 1


FUNCTIONS: dict[str, Function] = {
    "abs": Function(abs),
    "ceil": Function(math.ceil),
    "factorial": Function(_factorial),
    "floor": Function(math.floor),
    "max": Function(lambda *values: max(values), most=100),
    "min": Function(lambda *values: min(values), most=100),
    "round": Function(_round, most=2),
    "sqrt": Function(lambda value: _power(value, Fraction(1, 2))),
}

BINARY: dict[type[ast.operator], Callable[[Number, Number], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: _divide,
    ast.FloorDiv: _floor_divide,
    ast.Mod: _modulo,
    ast.Pow: _power,
}
