"""A process that compares expressions by algebra, run as a script by `pool`.

One JSON line in, one out. It knows nothing of this package, so that it starts fast; it limits its
own processor time and memory, so that it ends even if whoever started it is gone.
"""

import itertools
import json
import logging
import resource
import sys
import warnings
from typing import Any, TextIO

import mpmath
import sympy
from latex2sympy2_extended import latex2sympy
from math_verify import verify

_DIGITS = 60
_EQUAL = mpmath.mpf(10) ** -45
_MEMORY_BYTES = 2 * 2**30
_POINTS = (
    sympy.Rational(7, 3),
    sympy.Rational(-11, 7),
    sympy.Rational(13, 5),
    sympy.Rational(5, 9),
)
_PROBES = 4
_NEEDED = 2


def main() -> None:
    """Answer until the input ends."""
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    sys.setrecursionlimit(2000)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    lines, answers = sys.stdin, sys.stdout
    sys.stdout = sys.stderr
    same("x+1", r"\frac{2x+2}{2}", 0.0)
    _say(answers, True)
    for line in lines:
        job = json.loads(line)
        _limit_cpu(job["seconds"])
        try:
            _say(answers, same(job["a"], job["b"], job["tolerance"]))
        except Exception:  # noqa: BLE001 - foreign algebra; what it cannot do is not equal
            _say(answers, False)


def _say(answers: TextIO, result: bool) -> None:
    answers.write(json.dumps(bool(result)) + "\n")
    answers.flush()


def _limit_cpu(seconds: float) -> None:
    used = resource.getrusage(resource.RUSAGE_SELF)
    soft = int(used.ru_utime + used.ru_stime + seconds) + 2
    resource.setrlimit(resource.RLIMIT_CPU, (soft, resource.getrlimit(resource.RLIMIT_CPU)[1]))


def same(a: str, b: str, tolerance: float) -> bool:
    """Whether two texts in LaTeX mean the same.

    Args:
        a: one of them.
        b: the other.
        tolerance: relative error allowed between numbers; 0 where both are exact.
    """
    left, right = _parse(a), _parse(b)
    if isinstance(left, sympy.Eq) and isinstance(right, sympy.Eq):
        return _same_equation(left, right, tolerance)
    if isinstance(left, sympy.Expr) and isinstance(right, sympy.Expr):
        return _same_expression(left, right, tolerance)
    if isinstance(left, sympy.Expr) or isinstance(right, sympy.Expr):
        return False
    return any(bool(verify(*pair, timeout_seconds=None)) for pair in ((left, right), (right, left)))


def _parse(text: str) -> Any:
    parsed = latex2sympy(text)
    free: Any = parsed.free_symbols if hasattr(parsed, "free_symbols") else set()
    if {str(symbol) for symbol in free} == {"i"}:
        return parsed.subs(next(iter(free)), sympy.I)
    return parsed


def _same_expression(a: sympy.Expr, b: sympy.Expr, tolerance: float) -> bool:
    """Equal at some points; those where neither is real do not count if others are left."""
    if not a.free_symbols and not b.free_symbols:
        return _same_constant(a, b, tolerance)
    pairs = _probes(a, b)
    if any((x is None) != (y is None) for x, y in pairs):
        return bool(sympy.simplify(a - b) == 0)
    pairs = [(x, y) for x, y in pairs if x is not None]
    real = [(x, y) for x, y in pairs if not (x.imag and y.imag)]
    compared = real if len(real) >= _NEEDED else pairs
    if not all(_close(x, y, tolerance) for x, y in compared):
        return False
    return len(compared) >= _NEEDED or bool(sympy.simplify(a - b) == 0)


def _same_constant(a: sympy.Expr, b: sympy.Expr, tolerance: float) -> bool:
    if a == b:
        return not a.has(sympy.nan, sympy.zoo)
    x, y = _value(a), _value(b)
    if x is None or y is None:
        return False
    if not x or not y:
        return bool(sympy.simplify(a - b) == 0)
    return _close(x, y, tolerance)


def _same_equation(a: sympy.Eq, b: sympy.Eq, tolerance: float) -> bool:
    """Equations of the same points: one side minus the other, up to a constant factor."""
    left, right = a.lhs - a.rhs, b.lhs - b.rhs
    if left.free_symbols != right.free_symbols:
        return False
    ratios = [x / y for x, y in _probes(left, right) if x and y]
    return len(ratios) >= _NEEDED and all(_close(r, ratios[0], tolerance) for r in ratios)


def _probes(a: sympy.Expr, b: sympy.Expr) -> list[tuple[Any, Any]]:
    """Both values at some points, `None` where there is none."""
    symbols = sorted(a.free_symbols | b.free_symbols, key=str)
    found = []
    for number in range(_PROBES):
        points = itertools.islice(itertools.cycle(_POINTS), number, None)
        at = {
            symbol: point + sympy.Rational(place, 7)
            for place, (symbol, point) in enumerate(zip(symbols, points, strict=False))
        }
        found.append((_value(a.subs(at)), _value(b.subs(at))))
    return found


def _value(expression: Any) -> Any:
    """The number to `_DIGITS` digits; `None` if it is none."""
    with mpmath.workdps(_DIGITS):
        number = sympy.N(expression, _DIGITS)
        if not number.is_number or number.has(sympy.nan, sympy.zoo, sympy.oo):
            return None
        real, imaginary = number.as_real_imag()
        if not (real.is_Float or real.is_Rational) or not (
            imaginary.is_Float or imaginary.is_Rational
        ):
            return None
        return mpmath.mpc(str(real), str(imaginary))


def _close(x: Any, y: Any, tolerance: float) -> bool:
    with mpmath.workdps(_DIGITS):
        allowed = max(_EQUAL, mpmath.mpf(tolerance))
        return bool(abs(x - y) <= allowed * max(abs(x), abs(y)))


if __name__ == "__main__":
    main()
