"""The calculator tool: values, errors, and nothing else that an expression could do."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agentgym.errors import ToolError
from agentgym.tools.calculator import evaluate
from agentgym.tools.numbers import Number, format_number

_PATHS = re.compile(r"/tmp/[\w.-]+")


def run(case: Mapping[str, Any]) -> Mapping[str, Any]:
    """Value, or error text, of an expression."""
    expression = _expression(case)
    paths = [Path(path) for path in _PATHS.findall(expression)]
    before = [path.exists() for path in paths]
    result = _evaluate(expression)
    return {**result, "file_created": [path.exists() for path in paths] != before}


def _expression(case: Mapping[str, Any]) -> str:
    if "expression" in case:
        return str(case["expression"])
    parts = case["expression_gen"]
    return str(parts.get("prefix", "") + parts["unit"] * parts["count"] + parts.get("suffix", ""))


def _evaluate(expression: str) -> dict[str, Any]:
    try:
        value = evaluate(expression)
    except ToolError as error:
        return {"error": True, "error_text": str(error)}
    text = format_number(value)
    return {"error": False, "value": _plain(value), "value_text": text, "text": text}


def _plain(value: Number) -> Number | float:
    return value if isinstance(value, int) or abs(value) > 10**300 else float(value)
