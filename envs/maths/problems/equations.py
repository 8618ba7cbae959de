"""Equations with exact solutions."""

from fractions import Fraction
from random import Random

from agentgym.envs.maths.problems.base import Question, ask, signed, term

_NONZERO = [n for n in range(-9, 10) if n]


def one_side(rng: Random) -> Question:
    """ax + b = c, with a solution that need not be whole."""
    a, b, c = rng.choice(range(2, 13)), rng.choice(_NONZERO), rng.randint(-40, 60)
    text = f"Solve the equation {term(a)}{signed(b)} = {c} for x."
    return ask("one_side", text, Fraction(c - b, a), a, b, c)


def both_sides(rng: Random) -> Question:
    """ax + b = cx + d."""
    a, c = rng.sample(range(2, 13), 2)
    b, d = rng.choice(_NONZERO), rng.choice(_NONZERO)
    text = f"Which number x solves the equation {term(a)}{signed(b)} = {term(c)}{signed(d)}?"
    return ask("both_sides", text, Fraction(d - b, a - c), a, b, c, d)


def roots(rng: Random) -> Question:
    """A quadratic equation with two different whole roots."""
    first, second = sorted(rng.sample(range(-12, 13), 2))
    middle, last = -(first + second), first * second
    linear = f" {'-' if middle < 0 else '+'} {term(abs(middle))}" if middle else ""
    left = f"x^2{linear}{signed(last) if last else ''}"
    text = f"Find all solutions of the equation {left} = 0, with a comma between them."
    return ask("roots", text, f"{first}, {second}", first, second)


def system(rng: Random) -> Question:
    """Two equations in two unknowns."""
    x, y = rng.choice(_NONZERO), rng.choice(_NONZERO)
    a, b, c, d = (rng.choice(_NONZERO) for _ in range(4))
    if a * d == b * c:
        return system(rng)
    lines = []
    for p, q in ((a, b), (c, d)):
        second = f" {'-' if q < 0 else '+'} {term(abs(q), 'y')}"
        lines.append(f"{term(p)}{second} = {p * x + q * y}")
    text = f"Solve {lines[0]} and {lines[1]} for both unknowns. Answer with the pair (x, y)."
    return ask("system", text, f"({x}, {y})", a, b, c, d, x, y)


LINEAR = (one_side, both_sides)
HARDER = (roots, system)
