"""Reads what a message gives as its one answer: `Answer: X`, or a message that is nothing but X.

All bundled games ask for the same form, so that a policy has one habit to learn. Two answers are
as good as none, so that a list of candidates never pays.
"""

import re

_MARKER = re.compile(r"answer\W{0,4}:", re.IGNORECASE)
_DECORATION = " \t\r\n*_`'\"."


def read_answer(text: str, pattern: re.Pattern[str]) -> str | None:
    """The answer, if there is exactly one and all of it matches the pattern.

    Args:
        text: what the policy said; reasoning may stand before the marker, nothing behind the
            answer but white space, quotes, a full stop, or asterisks.
        pattern: of a whole answer.
    """
    parts = _MARKER.split(text)
    if len(parts) > 2:
        return None
    answer = parts[-1].strip(_DECORATION)
    return answer if pattern.fullmatch(answer) else None
