"""Plain arithmetic, exactly: rational numbers from text, with a bound on their size.

What is not plain arithmetic (letters, roots that are no numbers) is left to the algebra system.
"""

import math
import re
from dataclasses import dataclass
from fractions import Fraction

_MAX_BITS = 200_000
_MAX_FACTORIAL = 5_000
_MAX_DEPTH = 40
_MAX_TOKENS = 2_000
_NOISE = Fraction(1, 10**9)
_ENOUGH_DIGITS = 6
_TOKEN = re.compile(
    r"\s*(?:(?P<mixed>\d+(?:\s+\d+\s*/\s*\d+(?![\d.])|\s*\\frac\{\d+\}\{\d+\}))"
    r"|(?P<number>(?:\d{1,3}(?:,\d{3})+(?![\d,])|\d{1,3}(?: \d{3})+(?![\d /])|\d+)"
    r"(?:\.\d+|\.(?!\d))?(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?)"
    r"|(?P<macro>\\(?:frac|times|cdot|sqrt|binom))(?![A-Za-z])"
    r"|(?P<sign>\*\*|[-+*/^!(){}\[\]]))"
)
_MIXED = re.compile(r"(\d+)\D+?(\d+)\D+(\d+)")


class TooBigError(ValueError):
    """The number exists, but its digits would fill the memory."""


class _NotPlainError(ValueError):
    """The text is no plain arithmetic."""


@dataclass(frozen=True, slots=True)
class Exact:
    """A rational number and how precisely it was written."""

    value: Fraction
    digits: int | None = None
    """Significant digits of the shortest decimal in it; `None` if there is no decimal."""

    def times(self, factor: Fraction) -> "Exact":
        return Exact(self.value * factor, self.digits)


def evaluate(text: str) -> Exact | None:
    """The number that plain arithmetic comes to; `None` if the text is something else.

    Raises:
        TooBigError: it has too many digits.
    """
    try:
        parser = _Parser(_tokens(text))
        value = parser.sum(0)
        parser.finish()
    except (_NotPlainError, ZeroDivisionError):
        return None
    return Exact(value, parser.digits)


def same_number(a: Exact, b: Exact) -> bool:
    """Equal; decimals may stand for what they are the first digits of, from six digits on."""
    if a.value == b.value:
        return True
    if a.digits is None and b.digits is None:
        return False
    if abs(a.value - b.value) <= _NOISE * max(abs(a.value), abs(b.value)):
        return True
    return _rounds_to(a, b) or _rounds_to(b, a)


def _rounds_to(short: Exact, long: Exact) -> bool:
    """Whether the decimal `short` is `long`, rounded or cut at its last digit."""
    if short.digits is None or short.digits < _ENOUGH_DIGITS or not short.value:
        return False
    if long.digits is not None and long.digits < short.digits:
        return False
    unit = Fraction(10) ** (_magnitude(short.value) + 1 - short.digits)
    gap = abs(long.value) - abs(short.value)
    same_sign = (long.value < 0) == (short.value < 0)
    return same_sign and (abs(gap) * 2 <= unit or 0 <= gap < unit)


def _magnitude(value: Fraction) -> int:
    """Exponent of the first decimal digit."""
    value = abs(value)
    bits = value.numerator.bit_length() - value.denominator.bit_length()
    guess = math.floor(bits * math.log10(2))
    for exponent in (guess + 1, guess, guess - 1):
        if Fraction(10) ** exponent <= value:
            return exponent
    return guess - 2


def _tokens(text: str) -> list[tuple[str, str]]:
    tokens: list[tuple[str, str]] = []
    position = 0
    text = text.rstrip()
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None or len(tokens) >= _MAX_TOKENS:
            raise _NotPlainError(text)
        assert match.lastgroup is not None
        tokens.append((match.lastgroup, match.group(match.lastgroup)))
        position = match.end()
    return tokens


class _Parser:
    """Recursive descent; every method reads its part and gives its value."""

    def __init__(self, tokens: list[tuple[str, str]]) -> None:
        self._tokens = tokens
        self._position = 0
        self.digits: int | None = None

    def finish(self) -> None:
        if self._position != len(self._tokens):
            raise _NotPlainError

    def sum(self, depth: int) -> Fraction:
        if depth > _MAX_DEPTH:
            raise _NotPlainError
        total = self._product(depth)
        while (sign := self._take("+", "-")) is not None:
            term = self._product(depth)
            total += term if sign == "+" else -term
        return _checked(total)

    def _product(self, depth: int) -> Fraction:
        total = self._signed(depth)
        while True:
            operator = self._take("*", "/", r"\times", r"\cdot")
            if operator is None and not self._starts_factor():
                return total
            factor = self._signed(depth) if operator else self._power(depth)
            total = _checked(total / factor if operator == "/" else total * factor)

    def _starts_factor(self) -> bool:
        """Two factors side by side; two numbers side by side are no product."""
        kind, text = self._peek()
        return text in {"(", "{", r"\frac", r"\sqrt", r"\binom"} or (
            kind in {"number", "mixed"} and self._tokens[self._position - 1][1] in {")", "}"}
        )

    def _signed(self, depth: int) -> Fraction:
        negative = False
        while (sign := self._take("+", "-")) is not None:
            negative ^= sign == "-"
        value = self._power(depth)
        return -value if negative else value

    def _power(self, depth: int) -> Fraction:
        if depth > _MAX_DEPTH:
            raise _NotPlainError
        base = self._atom(depth)
        while self._take("!"):
            base = _factorial(base)
        if self._take("^", "**") is None:
            return base
        negative = self._take("-") is not None
        exponent = self._power(depth + 1)
        return _to_power(base, -exponent if negative else exponent)

    def _atom(self, depth: int) -> Fraction:
        kind, text = self._peek()
        self._position += 1
        if kind == "number":
            return self._number(text)
        if kind == "mixed":
            return _mixed(text)
        if text in {"(", "{", "["}:
            return self._rest_of_group(text, depth)
        if kind == "macro" and text in {r"\frac", r"\binom", r"\sqrt"}:
            return self._macro(text, depth)
        raise _NotPlainError

    def _macro(self, name: str, depth: int) -> Fraction:
        first = self._group(depth)
        if name == r"\sqrt":
            return _root(first)
        second = self._group(depth)
        return first / second if name == r"\frac" else _choose(first, second)

    def _group(self, depth: int) -> Fraction:
        if self._take("{") is None:
            raise _NotPlainError
        return self._rest_of_group("{", depth)

    def _rest_of_group(self, opened: str, depth: int) -> Fraction:
        value = self.sum(depth + 1)
        if self._take({"(": ")", "{": "}", "[": "]"}[opened]) is None:
            raise _NotPlainError
        return value

    def _number(self, text: str) -> Fraction:
        mantissa, _, exponent = text.replace(",", "").replace(" ", "").lower().partition("e")
        if len(mantissa) > 4000 or len(exponent) > 6 or abs(int(exponent or 0)) > 50_000:
            raise TooBigError(text[:40])
        if "." in mantissa or exponent:
            written = len(mantissa.replace(".", "").lstrip("0")) or 1
            self.digits = min(self.digits or written, written)
        return Fraction(mantissa) * Fraction(10) ** int(exponent or 0)

    def _peek(self) -> tuple[str, str]:
        return self._tokens[self._position] if self._position < len(self._tokens) else ("", "")

    def _take(self, *wanted: str) -> str | None:
        text = self._peek()[1]
        if text not in wanted or self._peek()[0] == "":
            return None
        self._position += 1
        return text


def _mixed(text: str) -> Fraction:
    parts = _MIXED.fullmatch(text.rstrip("}"))
    if parts is None or max(map(len, parts.groups())) > 1000:
        raise _NotPlainError
    whole, top, bottom = (int(part) for part in parts.groups())
    return whole + Fraction(top, bottom)


def _checked(value: Fraction) -> Fraction:
    if value.numerator.bit_length() + value.denominator.bit_length() > 2 * _MAX_BITS:
        raise TooBigError("more than 10^5 digits")
    return value


def _to_power(base: Fraction, exponent: Fraction) -> Fraction:
    if exponent.denominator != 1:
        if exponent == Fraction(1, 2):
            return _root(base)
        raise _NotPlainError
    bits = max(base.numerator.bit_length(), base.denominator.bit_length())
    if bits > 1 and bits * abs(exponent) > _MAX_BITS:
        raise TooBigError("the exponent is too large")
    if abs(base) == 1:
        return base ** (int(exponent) % 2)
    return Fraction(base**exponent.numerator)


def _root(value: Fraction) -> Fraction:
    if value < 0:
        raise _NotPlainError
    root = Fraction(math.isqrt(value.numerator), math.isqrt(value.denominator))
    if root * root != value:
        raise _NotPlainError
    return root


def _factorial(value: Fraction) -> Fraction:
    if value.denominator != 1 or value < 0:
        raise _NotPlainError
    if value > _MAX_FACTORIAL:
        raise TooBigError("the factorial is too large")
    return Fraction(math.factorial(int(value)))


def _choose(top: Fraction, bottom: Fraction) -> Fraction:
    if top.denominator != 1 or bottom.denominator != 1 or min(top, bottom) < 0:
        raise _NotPlainError
    if top > _MAX_FACTORIAL:
        raise TooBigError("the binomial is too large")
    return Fraction(math.comb(int(top), int(bottom)))
