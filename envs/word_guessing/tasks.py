"""Hidden words by index; on the lower levels the policy is told a short list that holds it."""

from functools import cache
from importlib.resources import files
from random import Random
from typing import NamedTuple

from agentgym.envs.levels import Problem


class Level(NamedTuple):
    """How much is told, and how many guesses there are."""

    num_candidates: int | None
    """Words in the list that is told; `None` = no list."""
    tries: int
    """Messages the policy has."""


LEVELS = {
    1: Level(num_candidates=10, tries=4),
    2: Level(num_candidates=30, tries=5),
    3: Level(num_candidates=None, tries=6),
}


@cache
def all_words() -> tuple[str, ...]:
    """The bundled words, in alphabetical order; each can be hidden."""
    text = (files("agentgym.envs.word_guessing") / "data" / "words.txt").read_text("utf-8")
    return tuple(text.split())


def draw(level: int, rng: Random) -> Problem:
    """A hidden word and the words told beside it; the hidden word alone is the identity."""
    num_candidates, tries = LEVELS[level]
    words = rng.sample(all_words(), num_candidates or 1)
    secret = words[0]
    candidates = sorted(words) if num_candidates else []
    return Problem(secret, {"secret": secret, "candidates": candidates, "tries": tries})
