"""Grades an answer to a mathematical question: does it mean the same as the right one?

Plain numbers, units, lists and intervals are compared exactly and at once. Only what needs algebra
goes to math-verify, in a process that is killed at its deadline, so that grading is bounded in
time and works in any thread.
"""

import re
import time

from agentgym.envs.maths.grading.compare import Comparison
from agentgym.envs.maths.grading.extract import extract
from agentgym.envs.maths.grading.latex import to_latex
from agentgym.envs.maths.grading.normalize import key, normalize
from agentgym.envs.maths.grading.pool import POOL, require
from agentgym.envs.maths.grading.read import read

__all__ = ["answer_of", "grade", "require"]

_MAX_TEXT = 100_000
_MAX_ANSWER = 2_000
_MAX_QUESTIONS = 12
_MAX_DEPTH = 25
_LONG_WORD = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{4,}")
_MAX_LONG_WORDS = 2
_HOPELESS = re.compile(
    r"\^\s*\{[^{}]*\^\s*\{[^{}]*\^|\^\s*\{?\s*\d{5}"
    r"|\d_\s*\{?\s*\d"
    r"|\\(?:sum|prod)[^=]{0,40}=[^^]{0,40}\^\s*\{?\s*(?:\d{6}|\d+\s*\^)"
)
"""Towers of powers, numerals of other bases, and sums over more than anything could add: equal only
letter by letter."""


class _Algebra:
    """The algebra system with a budget of time and questions for one grading."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._questions = _MAX_QUESTIONS

    def __call__(self, a: str, b: str, tolerance: float) -> bool:
        self._questions -= 1
        if self._seconds <= 0 or self._questions < 0 or not (_is_sane(a) and _is_sane(b)):
            return False
        started = time.monotonic()
        said = POOL.same(to_latex(a), to_latex(b), tolerance=tolerance, seconds=self._seconds)
        self._seconds -= time.monotonic() - started
        return said


def _is_sane(text: str) -> bool:
    """Whether it is a formula, closes what it opens, and is no deeper than people write."""
    if len(_LONG_WORD.findall(text)) > _MAX_LONG_WORDS or _HOPELESS.search(text):
        return False
    depth, deepest = 0, 0
    for char in text:
        depth += {"{": 1, "(": 1, "}": -1, ")": -1}.get(char, 0)
        deepest = max(deepest, depth)
    return depth == 0 and deepest <= _MAX_DEPTH


Text = str | int | float | None


def grade(gold: Text, prediction: Text, *, seconds: float = 2.0) -> bool:
    """Whether a prediction gives the gold answer; the order of the two does not matter.

    Both may be a bare answer or a whole solution: the last box or `<answer>` counts, else what
    follows "answer is", else the last formula or number. Exact numbers must be equal; a decimal
    may be the first digits (six or more) of the other. An empty or cut answer equals nothing.

    Args:
        gold: the right answer.
        prediction: what is graded.
        seconds: longest time for algebra; what is not known to be equal by then is not.

    Raises:
        MissingExtraError: algebra is needed and the extra `math` is not installed.
    """
    left, right = answer_of(gold), answer_of(prediction)
    if not left or not right:
        return False
    if key(left) == key(right):
        return True
    if max(len(left), len(right)) > _MAX_ANSWER:
        return False
    return Comparison(_Algebra(seconds)).any_same(read(left), read(right))


def answer_of(text: Text) -> str:
    """The answer in a text in one spelling; empty if there is none."""
    found = None if text is None else extract(str(text)[-_MAX_TEXT:])
    if found is None or len(found) > _MAX_ANSWER:
        return (found or "").strip()
    spelled = normalize(found)
    return spelled if key(spelled) else ""
