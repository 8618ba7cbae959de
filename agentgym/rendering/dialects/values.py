"""Arguments written as bare text: a tool's JSON schema says what they mean.

A text that is no value of its declared type stays text, so that the tool can tell the model what it
wrote; nothing is rounded, cut or guessed.
"""

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from agentgym.rendering.dialects.json_calls import decode_json
from agentgym.rendering.dialects.pythonic import read_python_call

_MAX_SCHEMA_DEPTH = 16


class Literal(NamedTuple):
    """A value that a text writes out, if it does."""

    found: bool
    value: Any = None
    is_json: bool = False


def spell(value: Any) -> str:
    """A value as bare text: strings as they are, all else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def read_literal(text: str) -> Literal:
    """The JSON or Python literal that makes up the whole text."""
    text = text.strip()
    value, end, reason = decode_json(text)
    if not reason and end == len(text):
        return Literal(True, value, is_json=True)
    call = read_python_call(f"f(x={text})", 0)
    if call.reason or list(call.arguments) != ["x"] or call.end != len(text) + len("f(x=)"):
        return Literal(False)
    return Literal(True, call.arguments["x"])


def to_value(text: str, schema: Mapping[str, Any], *, root: Mapping[str, Any]) -> Any:
    """`text` as the type that `schema` declares, else as it stands.

    Args:
        text: byte for byte what the policy wrote.
        schema: of this argument; empty if any value will do.
        root: schema of all arguments, where `$ref` looks.
    """
    types = frozenset(_types(schema, root, _MAX_SCHEMA_DEPTH))
    if types == {"string"}:
        return text
    found, value, is_json = read_literal(text)
    if not found:
        return text
    if types and "string" not in types:
        return next((each for each in _readings(value) if _fits(each, types)), text)
    if types and not _fits(value, types):
        return text
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    looks_so = isinstance(value, str) or (is_number and not (is_json and math.isfinite(value)))
    return text if looks_so else value


def _readings(value: Any) -> Iterator[Any]:
    """The value, and what it means to the same effect."""
    yield value
    if isinstance(value, float) and value.is_integer():
        yield int(value)
    if isinstance(value, str):
        inner = read_literal(value)
        if inner.found:
            yield inner.value


def _types(schema: Any, root: Mapping[str, Any], depth: int) -> Iterator[str]:
    """JSON types that a schema lets pass; none if it does not say."""
    if not isinstance(schema, Mapping) or depth == 0:
        return
    declared = schema.get("type")
    if declared is not None:
        yield from [declared] if isinstance(declared, str) else declared
        return
    yield from map(_type_of, schema.get("enum") or ())
    if "const" in schema:
        yield _type_of(schema["const"])
    if "properties" in schema:
        yield "object"
    for inner in (*_branches(schema), _referred(schema.get("$ref"), root)):
        yield from _types(inner, root, depth - 1)


def _branches(schema: Mapping[str, Any]) -> list[Any]:
    return [inner for key in ("anyOf", "oneOf", "allOf") for inner in schema.get(key) or ()]


def _referred(reference: Any, root: Mapping[str, Any]) -> Any:
    found: Any = root if isinstance(reference, str) else None
    for key in str(reference).removeprefix("#/").split("/"):
        found = found.get(key) if isinstance(found, Mapping) else None
    return found


def _type_of(value: Any) -> str:
    names = {bool: "boolean", int: "integer", float: "number", str: "string", type(None): "null"}
    return names.get(type(value), "array" if isinstance(value, list) else "object")


def _fits(value: Any, types: frozenset[str]) -> bool:
    name = _type_of(value)
    return name in types or (name == "integer" and "number" in types)
