"""What a final message earns: the grader's word, and a little for the asked form.

An answer must be announced and worked out. A question repeated, or its terms put into a box as
they are, has the right value now and then and is no answer.
"""

import re
from math import gcd

from agentgym.envs.maths.grading import answer_of, grade

_BOXED = re.compile(r"\\boxed|<answer>", re.IGNORECASE)
_MARKER = re.compile(r"answer\W{0,4}(?::|is\b)", re.IGNORECASE)
_WORD = re.compile(r"[A-Za-z]{2,}")
_MAX_BARE = 60
_SEPARATOR = re.compile(r",(?!\d{3}(?!\d))|;")
_LAST_LINE = re.compile(r"Answer: \S[^\n]*")
_OPERATION = re.compile(r"[+*^!]|(?<=[\w)}])\s*-|\\(?:times|cdot|sqrt|binom)|\d\s*\(")
_FRACTION = re.compile(r"(\d{1,30})\s*/\s*(\d{1,30})|\\frac\{(\d{1,30})\}\{(\d{1,30})\}")


def is_correct(gold: str, message: str | None, *, exact: bool) -> bool:
    """Whether the one answer given is right.

    Args:
        gold: the right answer.
        message: the final message; `None` if there was none.
        exact: whether the answer must be plain numbers in lowest terms.
    """
    if message is None or not is_announced(message):
        return False
    return (not exact or is_worked_out(answer_of(message))) and grade(gold, message)


def has_form(gold: str, message: str | None, *, exact: bool) -> bool:
    """Whether there is one `Answer:`, in the last line, followed by the answer alone.

    Where it must be plain numbers, there are as many of them as were asked for.
    """
    text = (message or "").strip()
    last = text.rpartition("\n")[2].strip()
    if len(_MARKER.findall(text)) != 1 or not _LAST_LINE.fullmatch(last):
        return False
    answer = answer_of(text)
    if not exact:
        return bool(answer)
    plain = re.search(r"\d", answer) and is_worked_out(answer) and not _WORD.search(answer)
    return bool(plain) and _num_parts(answer) == _num_parts(gold)


def _num_parts(answer: str) -> int:
    return 1 + len(_SEPARATOR.findall(answer))


def is_announced(message: str) -> bool:
    """Whether a message says which part of it is the answer: box, tag, one `Answer:`, or all."""
    if _BOXED.search(message):
        return True
    if markers := _MARKER.findall(message):
        return len(markers) == 1
    bare = message.strip()
    return len(bare) <= _MAX_BARE and "\n" not in bare and len(_WORD.findall(bare)) <= 1


def is_worked_out(answer: str) -> bool:
    """Whether nothing is left to compute: no operation, and fractions in lowest terms."""
    if _OPERATION.search(answer):
        return False
    for groups in _FRACTION.findall(answer):
        top, bottom = (int(number) for number in groups if number)
        if bottom < 2 or gcd(top, bottom) != 1:
            return False
    return True
