"""Inputs by seed: edge cases first where a problem has them, then whatever is drawn."""

from random import Random

_WORDS = [
    "amber",
    "basin",
    "cedar",
    "delta",
    "ember",
    "flint",
    "grove",
    "hazel",
    "inlet",
    "jolly",
    "knoll",
    "lunar",
    "maple",
    "noble",
    "ocean",
    "pearl",
    "quill",
    "raven",
    "slate",
    "tulip",
    "umbra",
    "vivid",
    "wheat",
    "xenon",
    "yield",
    "zebra",
    "owl",
    "fox",
    "elk",
    "yak",
    "bee",
    "ant",
]


def ints(rng: Random, low: int, high: int, *, num: int) -> list[int]:
    """That many, each drawn by itself."""
    return [rng.randint(low, high) for _ in range(num)]


def singles(rng: Random, low: int, high: int, *, num: int = 12) -> list[list[int]]:
    """Argument lists of one number each, all different."""
    return [[number] for number in rng.sample(range(low, high + 1), num)]


def lists(rng: Random, low: int, high: int, *, sizes: tuple[int, ...]) -> list[list[int]]:
    """One list of numbers per size."""
    return [ints(rng, low, high, num=size) for size in sizes]


def words(rng: Random, num: int) -> list[str]:
    """Short English words; some may come twice."""
    return rng.choices(_WORDS, k=num)


def text(rng: Random, num: int) -> str:
    """Words with blanks between them."""
    return " ".join(words(rng, num))


def letters(rng: Random, alphabet: str, size: int) -> str:
    """A string over an alphabet."""
    return "".join(rng.choices(alphabet, k=size))
