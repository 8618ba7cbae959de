"""Plain typing as LaTeX, for the algebra system: `sqrt(2)*pi` is `\\sqrt{2}\\cdot \\pi`."""

import re

from agentgym.envs.maths.grading.normalize import END, TEXT

_WORDS = re.compile(
    r"(?<![\\A-Za-z])(arcsin|arccos|arctan|sin|cos|tan|cot|sec|csc|ln|log|exp|pi|theta|alpha|beta"
    r"|lambda|infty)(?![A-Za-z])"
)
_SQRT = re.compile(r"\\?(?<![A-Za-z])sqrt\s*\(")


def to_latex(text: str) -> str:
    """The text with names as macros, and `*` and `**` as LaTeX has them."""
    text = re.sub(rf"[{TEXT}{END}]", " ", text)
    text = text.replace("**", "^")
    while match := _SQRT.search(text):
        text = _braced(text, match.start(), match.end())
    text = re.sub(r"(?<![\\A-Za-z])sqrt", r"\\sqrt", text)
    text = re.sub(r"(?<![A-Za-z])(?:infinity|inf|oo)(?![A-Za-z])", r"\\infty", text)
    text = _WORDS.sub(r"\\\1 ", text)
    text = re.sub(r"\^\s*\(([^()]*)\)", r"^{\1}", text)
    text = re.sub(r"\^\s*(-?\d{2,})", r"^{\1}", text)
    return text.replace("*", r"\cdot ")


def _braced(text: str, start: int, inside: int) -> str:
    """`sqrt(...)` from `start` with braces around what begins at `inside`."""
    depth = 1
    for position in range(inside, len(text)):
        depth += {"(": 1, ")": -1}.get(text[position], 0)
        if depth == 0:
            inner, rest = text[inside:position], text[position + 1 :]
            return f"{text[:start]}\\sqrt{{{inner}}}{rest}"
    return f"{text[:start]}\\sqrt{{{text[inside:]}}}"
