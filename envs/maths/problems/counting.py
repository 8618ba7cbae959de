"""How many ways there are."""

from fractions import Fraction
from math import comb, factorial, gcd
from random import Random

from agentgym.envs.maths.problems.base import Question, ask

_WORDS = ("LEVEL", "BANANA", "BALLOON", "COFFEE", "PEPPER", "SUMMER", "LETTER", "CANDLE", "MAPS")


def committee(rng: Random) -> Question:
    """Some of a group of two kinds."""
    first, second = rng.randint(4, 9), rng.randint(3, 8)
    some, others = rng.randint(1, first - 1), rng.randint(1, second - 1)
    text = (
        f"A club has {first} juniors and {second} seniors. In how many ways can a team of {some} "
        f"juniors and {others} seniors be chosen?"
    )
    ways = comb(first, some) * comb(second, others)
    return ask("committee", text, ways, first, second, some, others)


def paths(rng: Random) -> Question:
    """Shortest ways in a grid of streets."""
    east, north = rng.randint(2, 8), rng.randint(2, 8)
    text = (
        f"A taxi drives {east} blocks east and {north} blocks north in any order, never back. How "
        "many different routes are there?"
    )
    return ask("paths", text, comb(east + north, east), *sorted((east, north)))


def letters(rng: Random) -> Question:
    """Arrangements of a word, or of some different digits."""
    if rng.random() < 0.5:
        length, available = rng.randint(2, 4), rng.randint(5, 9)
        text = f"How many codes of {length} different symbols can be made from {available} symbols?"
        return ask("codes", text, comb(available, length) * factorial(length), length, available)
    word = "".join(rng.sample(rng.choice(_WORDS), k=rng.randint(3, 4)))
    ways = factorial(len(word))
    for letter in set(word):
        ways //= factorial(word.count(letter))
    text = f"In how many different orders can the letters {', '.join(word)} be written?"
    return ask("letters", text, ways, "".join(sorted(word)))


def dice(rng: Random) -> Question:
    """The chance of a sum with two dice."""
    sides, wanted = rng.randint(4, 12), 0
    wanted = rng.randint(3, 2 * sides - 1)
    ways = sum(1 <= wanted - first <= sides for first in range(1, sides + 1))
    text = (
        f"Two fair dice with sides numbered from 1 to {sides} are thrown. What is the probability, "
        f"as a fraction in lowest terms, that the sum is {wanted}?"
    )
    return ask("dice", text, Fraction(ways, sides * sides), sides, wanted)


def multiples(rng: Random) -> Question:
    """Numbers divisible by one of two."""
    first, second = rng.sample(range(2, 13), 2)
    limit = rng.randrange(60, 400, 5)
    both = first * second // gcd(first, second)
    text = (
        f"How many whole numbers from 1 to {limit} are divisible by {first} or by {second} or by "
        "both of them?"
    )
    ways = limit // first + limit // second - limit // both
    return ask("multiples", text, ways, *sorted((first, second)), limit)


KINDS = (committee, paths, letters, dice, multiples)
