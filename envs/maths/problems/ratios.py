"""Fractions and percentages."""

from fractions import Fraction
from random import Random

from agentgym.envs.maths.problems.base import Question, ask


def _fraction(rng: Random) -> Fraction:
    bottom = rng.randint(2, 12)
    return Fraction(rng.randint(1, bottom - 1), bottom)


def sums(rng: Random) -> Question:
    """The sum or difference of two fractions."""
    first, second = _fraction(rng), _fraction(rng)
    if rng.random() < 0.5:
        text = f"Add the fractions {first} and {second}. What is the sum in lowest terms?"
        return ask("add", text, first + second, *sorted((first, second)))
    text = f"Subtract {second} from {first}. What is the difference in lowest terms?"
    return ask("subtract", text, first - second, first, second)


def products(rng: Random) -> Question:
    """The product or quotient of two fractions."""
    first, second = _fraction(rng), _fraction(rng)
    if rng.random() < 0.5:
        text = f"Multiply the fractions {first} and {second}. What is the product in lowest terms?"
        return ask("multiply", text, first * second, *sorted((first, second)))
    text = f"Divide {first} by {second}. What is the result in lowest terms?"
    return ask("divide", text, first / second, first, second)


def remaining(rng: Random) -> Question:
    """A part, then a part of the rest."""
    first, second = _fraction(rng), _fraction(rng)
    text = (
        f"Somebody drinks {first} of a bottle, and later {second} of what is left. What fraction "
        "of the bottle is left in the end?"
    )
    return ask("remaining", text, (1 - first) * (1 - second), first, second)


def share(rng: Random) -> Question:
    """So many per cent of a number."""
    percent, whole = rng.randrange(5, 100, 5), rng.randrange(20, 1000, 4)
    text = f"What number is {percent} per cent of {whole}? Give it exactly."
    return ask("share", text, Fraction(percent * whole, 100), percent, whole)


def change(rng: Random) -> Question:
    """A price that goes up or down."""
    percent, price = rng.randrange(5, 75, 5), rng.randrange(20, 800, 20)
    up = rng.random() < 0.5
    word = "rises" if up else "falls"
    text = (
        f"The price of a coat is {price} dollars and {word} by {percent} per cent. What is it now?"
    )
    factor = Fraction(100 + (percent if up else -percent), 100)
    return ask("change", text, price * factor, percent, price, up)


def rate(rng: Random) -> Question:
    """How many per cent one number is of another."""
    whole, percent = rng.choice((20, 25, 40, 50, 80, 125, 200, 250, 400, 500)), rng.randint(3, 97)
    part = Fraction(whole * percent, 100)
    if part.denominator != 1:
        return rate(rng)
    text = f"In a group of {whole} people, {part} wear a hat. How many per cent is that?"
    return ask("rate", text, percent, whole, percent)


FRACTIONS = (sums, products, remaining)
PERCENTAGES = (share, change, rate)
