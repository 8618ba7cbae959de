"""What stands where ReAct wants a JSON object: the forms that say the same without a guess.

A Python dictionary, `name=value` pairs, and, for a tool with a single argument that is needed, its
bare value.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from agentgym.rendering.base import ToolSchema
from agentgym.rendering.dialects.json_calls import (
    CallFields,
    arguments_of,
    call_fields,
    decode_json,
    has_no_parameters,
)
from agentgym.rendering.dialects.pythonic import balanced_end, read_python_call
from agentgym.rendering.dialects.values import read_literal, to_value

_NAME_KEYS = ("name", "action", "tool", "tool_name")
_INPUT_KEYS = ("arguments", "parameters", "action_input", "input", "tool_input", "args")
_NO_INPUT = {"none", "null", "n/a", "no input"}
_PAIR = re.compile(r"([^\W\d]\w*)\s*=[^=]")


def read_input(text: str, *, name: str | None, tools: Sequence[ToolSchema]) -> CallFields:
    """A call from its input.

    Args:
        text: the input.
        name: of the tool; `None` if the input has it.
        tools: what a bare value can be an argument of.
    """
    text = text.strip()
    if name is None:
        return _whole_call(text, _object(text), tools)
    value = _object(text)
    if value is not None:
        return CallFields(name, value)
    if text.startswith("{"):
        return arguments_of(text, name=name, label="the Action Input")
    pair = _PAIR.match(text)
    if pair is not None and pair[1] in (_parameters(name, tools).get("properties") or {}):
        call = read_python_call(f"f({text})", 0)
        is_whole = not call.reason and call.end == len(text) + len("f()")
        return CallFields(name, call.arguments) if is_whole else _not_an_object(name)
    if not text or text.lower() in _NO_INPUT:
        return _empty(text, name=name, tools=tools)
    return _bare_values(text, name=name, tools=tools)


def read_in_brackets(text: str, *, name: str, tools: Sequence[ToolSchema]) -> CallFields:
    """A call from its input in round or square brackets, as `name(...)` has it."""
    text = text.strip()
    if balanced_end(text, 0) != len(text):
        return _not_an_object(name)
    return read_input(text[1:-1], name=name, tools=tools)


def _object(text: str) -> dict[str, Any] | None:
    found = read_literal(text)
    if isinstance(found.value, str):
        found = read_literal(found.value)
    return found.value if isinstance(found.value, dict) else None


def _whole_call(text: str, value: dict[str, Any] | None, tools: Sequence[ToolSchema]) -> CallFields:
    """`{"action": ..., "action_input": ...}`, under the names that models give these."""
    if value is None:
        return CallFields("", {}, decode_json(text).reason or "text after the JSON object")
    key = next((key for key in _NAME_KEYS if isinstance(value.get(key), str)), None)
    if key is None:
        return CallFields("", {}, "the Action names no tool")
    inputs = [each for each in _INPUT_KEYS if each in value]
    if len(inputs) == 1 and isinstance(value[inputs[0]], str):
        return read_input(value[inputs[0]], name=value[key], tools=tools)
    arguments = {"arguments": value[inputs[0]]} if len(inputs) == 1 else {}
    return call_fields({"name": value[key], **arguments}, tools=tools)


def _bare_values(text: str, *, name: str, tools: Sequence[ToolSchema]) -> CallFields:
    """The value of a tool's single argument, or one `name: value` on each line."""
    schema = _parameters(name, tools)
    properties = schema.get("properties") or {}
    pairs = [line.partition(":") for line in text.splitlines() if line.strip()]
    if pairs[0][1] and pairs[0][0].strip() in properties:
        keys = [key.strip() for key, _, _ in pairs]
        values = [value for _, _, value in pairs]
        if len(set(keys)) < len(keys) or not set(keys) <= set(properties):
            return _not_an_object(name)
    else:
        needed = [key for key in schema.get("required") or () if key in properties]
        keys = list(properties) if len(properties) == 1 else needed
        values = [text]
    if len(keys) != len(values):
        return _not_an_object(name)
    if any(_holds_objects(value) for value in values):
        return _not_an_object(name)
    written = zip(keys, map(_unquoted, values), strict=True)
    return CallFields(
        name, {key: to_value(value, properties[key] or {}, root=schema) for key, value in written}
    )


def _holds_objects(text: str) -> bool:
    """A list of objects was meant as JSON, not as the value of one argument."""
    value = read_literal(text).value
    return isinstance(value, list) and any(isinstance(item, dict) for item in value)


def _unquoted(text: str) -> str:
    quoted = read_literal(text)
    return quoted.value if isinstance(quoted.value, str) else text.strip()


def _empty(text: str, *, name: str, tools: Sequence[ToolSchema]) -> CallFields:
    if has_no_parameters(name, tools):
        return CallFields(name, {})
    return _bare_values(text, name=name, tools=tools) if text else _not_an_object(name)


def _not_an_object(name: str) -> CallFields:
    return CallFields("", {}, f"the Action Input of {name} must be a JSON object")


def _parameters(name: str, tools: Sequence[ToolSchema]) -> Mapping[str, Any]:
    functions = [tool["function"] for tool in tools if tool["function"].get("name") == name]
    return (functions[0].get("parameters") or {}) if functions else {}
