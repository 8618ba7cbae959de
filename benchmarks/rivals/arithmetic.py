"""The task that every contestant plays: two calls of a calculator, then an answer.

Nothing but the standard library, so that each rival's interpreter can load it.
"""

import json
import re
import resource
import time

TOOL = "calculate"
_OPERATIONS = {"+": int.__add__, "-": int.__sub__, "*": int.__mul__}
CALL = re.compile(r"<tool_call>\s*(\{.*?\})\s*</tool_call>", re.DOTALL)


def numbers(index: int) -> tuple[int, int, int]:
    """What task `index` is about."""
    return 12 + index % 88, 3 + index % 7, 5 + index % 41


def question(index: int) -> str:
    """The user's message."""
    a, b, c = numbers(index)
    task = f"Task {index}: multiply {a} by {b}, then add {c}."
    return f"{task} One step per call; end with 'Answer: ' and the number."


def answer(index: int) -> str:
    """The right last message."""
    a, b, c = numbers(index)
    return f"Answer: {a * b + c}"


def calculate(expression: str) -> str:
    """Apply one operation to two integers.

    Args:
        expression: Two integers around +, - or *.
    """
    match = re.fullmatch(r"\s*(-?\d+)\s*([-+*])\s*(-?\d+)\s*", expression)
    if match is None:
        return "error: write two integers around +, - or *"
    return str(_OPERATIONS[match[2]](int(match[1]), int(match[3])))


def expressions(index: int) -> tuple[str, str]:
    """Of the two calls."""
    a, b, c = numbers(index)
    return f"{a}*{b}", f"{a * b}+{c}"


def turns(index: int) -> list[str]:
    """What the scripted policy says, in Hermes' dialect."""
    calls = [{"name": TOOL, "arguments": {"expression": text}} for text in expressions(index)]
    said = [f"<tool_call>\n{json.dumps(call)}\n</tool_call>" for call in calls]
    return [*said, answer(index)]


def index_of(text: str, limit: int) -> int:
    """The task whose question this is."""
    return next(index for index in range(limit) if text.strip() == question(index))


class Clock:
    """Runs from when it is made."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), _cpu_seconds()

    def spent(self) -> dict[str, float]:
        """Seconds of wall clock and of processors, ended child processes included."""
        wall, cpu = time.perf_counter() - self._wall, _cpu_seconds() - self._cpu
        return {"seconds": wall, "cpu_seconds": cpu}


def _cpu_seconds() -> float:
    usages = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)
