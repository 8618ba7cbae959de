"""What may enter a record: finite JSON values in valid Unicode, of bounded depth.

A policy can sample half an emoji as an escape, or arguments nested a thousand deep; neither
survives a trip through a file, so neither may get into a trajectory.
"""

import json
from typing import Any, SupportsFloat

from pydantic_core import to_jsonable_python

MAX_DEPTH = 64


def why_not_json(value: Any) -> str | None:
    """What keeps `value`, as decoded from JSON, from being written again; `None` if nothing."""
    if _is_deeper(value, MAX_DEPTH):
        return f"values nested more than {MAX_DEPTH} deep"
    try:
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return "half of a surrogate pair in a string"
    except ValueError:
        return "a number that is not finite"
    return None


def as_json(value: Any) -> Any:
    """`value` in JSON's types: records as objects, numbers of numpy as numbers, NaN as null.

    Raises:
        ValueError: there is no such form; says why.
    """
    plain = to_jsonable_python(value, inf_nan_mode="null", fallback=_number_or_text)
    reason = why_not_json(plain)
    if reason is not None:
        raise ValueError(reason)
    return plain


def _number_or_text(value: Any) -> float | str:
    return float(value) if isinstance(value, SupportsFloat) else str(value)


def _is_deeper(value: Any, limit: int) -> bool:
    if isinstance(value, dict):
        value = list(value.values())
    if not isinstance(value, list):
        return False
    return limit == 0 or any(_is_deeper(item, limit - 1) for item in value)
