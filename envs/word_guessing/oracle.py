"""Guesses the word whose marks split what is still possible into the smallest parts.

It keeps to the list that the policy was told, or to the bundled words where none was, and learns
from the conversation alone.
"""

import re
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

from agentgym.envs.word_guessing.feedback import MARKS, feedback
from agentgym.envs.word_guessing.tasks import all_words
from agentgym.messages import Message, assistant
from agentgym.trajectory import Task

_FIRST_WORD = "stare"
_JUDGED = re.compile(rf"^((?:[a-z] ){{4}}[a-z])\n((?:[{MARKS}] ){{4}}[{MARKS}])$", re.MULTILINE)


def oracle(task: Task, messages: Sequence[Message]) -> Message:
    """The next guess."""
    words = tuple(task["candidates"]) or all_words()
    judged = [
        (guess.replace(" ", ""), marks.replace(" ", ""))
        for message in messages
        if message.role == "user"
        for guess, marks in _JUDGED.findall(message.content)
    ]
    if not judged and not task["candidates"]:
        return assistant(f"Answer: {_FIRST_WORD}")
    possible = tuple(w for w in words if all(feedback(g, w) == marks for g, marks in judged))
    return assistant(f"Answer: {best_guess(possible, words)}")


@lru_cache(maxsize=256)
def best_guess(possible: tuple[str, ...], words: tuple[str, ...]) -> str:
    """The word with the smallest largest part; a possible one where two are as good.

    Kept, because all games begin alike.

    Args:
        possible: words that fit what was heard, at least one.
        words: words that may be guessed.
    """
    if len(possible) <= 2:
        return possible[0]
    among = set(possible)
    return min(words, key=lambda word: (_largest_part(word, possible), word not in among, word))


def _largest_part(guess: str, possible: Sequence[str]) -> int:
    return max(Counter(feedback(guess, secret) for secret in possible).values())
