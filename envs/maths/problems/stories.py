"""Arithmetic in words: two or three steps on whole numbers."""

from random import Random

from agentgym.envs.maths.problems.base import Question, ask

_NAMES = ("Mia", "Tom", "Ana", "Ben", "Zoe", "Raj")
_THINGS = ("pens", "eggs", "stamps", "marbles", "cards", "shells")


def boxes(rng: Random) -> Question:
    """Buys boxes of the same size, gives some away."""
    number, size = rng.randint(3, 19), rng.randint(6, 25)
    away = rng.randint(2, number * size - 2)
    name, things = rng.choice(_NAMES), rng.choice(_THINGS)
    text = (
        f"{name} buys {number} boxes with {size} {things} each and gives away {away} {things}. "
        f"How many {things} does {name} have left?"
    )
    return ask("boxes", text, number * size - away, number, size, away)


def savings(rng: Random) -> Question:
    """Saves the same every week for a price."""
    weekly, weeks, had = rng.randint(4, 30), rng.randint(3, 20), rng.randint(5, 90)
    name = rng.choice(_NAMES)
    text = (
        f"{name} has {had} dollars and wants a bicycle for {had + weekly * weeks} dollars. {name} "
        f"saves {weekly} dollars every week. After how many weeks is it enough?"
    )
    return ask("savings", text, weeks, weekly, weeks, had)


def journey(rng: Random) -> Question:
    """Two parts of a journey at different speeds."""
    first, second = rng.randint(30, 95), rng.randint(30, 95)
    hours, more = rng.randint(2, 7), rng.randint(2, 7)
    text = (
        f"A train goes {hours} hours at {first} km per hour and then {more} hours at {second} km "
        "per hour. How many kilometres does it go altogether?"
    )
    return ask("journey", text, hours * first + more * second, hours, first, more, second)


def shared(rng: Random) -> Question:
    """Shares equally what two have together."""
    people, each = rng.randint(3, 12), rng.randint(7, 40)
    first = rng.randint(3, people * each - 3)
    one, other = rng.sample(_NAMES, 2)
    things = rng.choice(_THINGS)
    text = (
        f"{one} has {first} {things} and {other} has {people * each - first}. They share them all "
        f"equally among {people} children. How many {things} does every child get?"
    )
    return ask("shared", text, each, people, each, first)


KINDS = (boxes, savings, journey, shared)
