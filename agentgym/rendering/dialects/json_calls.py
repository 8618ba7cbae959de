"""JSON as policies write it: where a value ends, and whether it is a call.

Read as JSON means it, but for raw control characters inside strings, which can be nothing else. A
key that stands there twice or a number that is none would have to be guessed, so they are refused.
"""

import json
import math
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from agentgym.rendering.base import ToolSchema

ARGUMENT_KEYS = ("arguments", "parameters")


class Decoded(NamedTuple):
    """A value of the text, and where it ends; `reason` says why there is none."""

    value: Any
    end: int
    reason: str = ""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(
            name for name, times in Counter(name for name, _ in pairs).items() if times > 1
        )
        raise ValueError(f"the key {twice!a} stands there twice")
    return found


def finite(text: str) -> float:
    """The number that a text writes.

    Raises:
        ValueError: JSON has no such number.
    """
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:40]} is no number that JSON can hold")
    return value


_DECODER = json.JSONDecoder(
    strict=False, object_pairs_hook=_unique, parse_float=finite, parse_constant=finite
)


def decode_json(text: str, position: int = 0) -> Decoded:
    """The JSON value that begins exactly at `position`; raw control characters are let pass."""
    try:
        value, end = _DECODER.raw_decode(text, position)
    except json.JSONDecodeError as error:
        near = text[error.pos : error.pos + 20]
        where = f"{error.msg} at character {error.pos - position}, before {near!r}"
        return Decoded(None, position, f"not valid JSON: {where}")
    except RecursionError:
        return Decoded(None, position, "not valid JSON: nested too deeply")
    except ValueError as error:
        return Decoded(None, position, f"not valid JSON: {error}")
    return Decoded(value, end)


def has_no_parameters(name: str, tools: Sequence[ToolSchema]) -> bool:
    """Whether the tool is known to take no arguments, so that a call may leave them out."""
    functions = [tool["function"] for tool in tools if tool["function"].get("name") == name]
    return bool(functions) and not (functions[0].get("parameters") or {}).get("properties")


def tool_names(tools: Sequence[ToolSchema]) -> frozenset[str]:
    """Names that a call may have."""
    return frozenset(tool["function"]["name"] for tool in tools)


class CallFields(NamedTuple):
    """Name and arguments of a call; `reason` says why they are none."""

    name: str
    arguments: dict[str, Any]
    reason: str = ""


def call_fields(value: Any, *, tools: Sequence[ToolSchema] = ()) -> CallFields:
    """Read `{"name": ..., "arguments": ...}`, or the same as OpenAI wraps it.

    Arguments may be given as a JSON text, and left out where the tool takes none.
    """
    if not isinstance(value, dict):
        return CallFields("", {}, "a call must be a JSON object with name and arguments")
    if "name" not in value and isinstance(value.get("function"), dict):
        value = value["function"]
    name = value.get("name")
    if not isinstance(name, str) or not name.strip():
        return CallFields("", {}, 'the call has no "name"')
    keys = [key for key in ARGUMENT_KEYS if value.get(key) is not None]
    if len(keys) > 1 and value[keys[0]] != value[keys[1]]:
        return CallFields("", {}, f'{name} has both "arguments" and "parameters"')
    if not keys and has_no_parameters(name, tools):
        return CallFields(name, {})
    if not keys:
        return CallFields("", {}, f'the call of {name} has no "arguments"')
    return arguments_of(value[keys[0]], name=name, label=f'"{keys[0]}"')


def arguments_of(value: Any, *, name: str, label: str = "the arguments") -> CallFields:
    """Arguments of the tool `name`, given as an object or as its JSON text."""
    if isinstance(value, str):
        text = value.strip()
        value, end, reason = decode_json(text)
        if reason or end < len(text):
            why = reason or "text after the JSON object"
            return CallFields("", {}, f"{label} of {name}: {why}")
    if not isinstance(value, dict):
        return CallFields("", {}, f"{label} of {name} must be a JSON object")
    return CallFields(name, value)
