"""Random arguments that fit a tool's schema.

Words and numbers come from the conversation, as those of a policy that guesses would: random
letters would never get past the first lookup.
"""

import re
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

_MAX_DEPTH = 4
_NUMBER = re.compile(r"(?<![\w.])-?\d{1,9}(?![\w.])")
_WORD = re.compile(r"[A-Za-z][\w-]*")


def random_arguments(schema: Mapping[str, Any], text: str, rng: Random) -> dict[str, Any]:
    """Arguments for a tool's parameters: required ones, and half of the others.

    Args:
        schema: JSON schema of one object.
        text: where words and numbers are taken from.
        rng: of the choice.
    """
    return _Maker(schema.get("$defs", {}), text, rng).object(schema, 0)


class _Maker:
    def __init__(self, definitions: Mapping[str, Any], text: str, rng: Random) -> None:
        self._definitions = definitions
        self._words = sorted(set(_WORD.findall(text))) or ["word"]
        self._numbers = sorted({int(number) for number in _NUMBER.findall(text)}) or [1]
        self._rng = rng

    def object(self, schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
        required = schema.get("required", [])
        return {
            name: self.value(described, depth + 1)
            for name, described in schema.get("properties", {}).items()
            if name in required or self._rng.random() < 0.5
        }

    def value(self, schema: Mapping[str, Any], depth: int) -> Any:
        """A value of any schema that tools are described with."""
        if "$ref" in schema:
            return self.value(self._definitions.get(schema["$ref"].split("/")[-1], {}), depth + 1)
        for key in ("anyOf", "oneOf", "allOf"):
            if key in schema:
                return self.value(self._rng.choice(schema[key]), depth + 1)
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return self._rng.choice(schema["enum"])
        return self._of_type(schema, depth)

    def _of_type(self, schema: Mapping[str, Any], depth: int) -> Any:
        match schema.get("type"):
            case "integer":
                return self._between(schema)
            case "number":
                return float(self._between(schema))
            case "boolean":
                return self._rng.random() < 0.5
            case "null":
                return None
            case "array":
                return self._array(schema, depth)
            case "object":
                return self.object(schema, depth)
        return self._text(schema)

    def _between(self, schema: Mapping[str, Any]) -> int:
        known = self._rng.choice(self._numbers)
        low = int(schema.get("minimum", schema.get("exclusiveMinimum", min(0, known) - 1) + 1))
        high = int(schema.get("maximum", schema.get("exclusiveMaximum", max(low, known) + 1) - 1))
        return self._rng.randint(low, max(low, high))

    def _array(self, schema: Mapping[str, Any], depth: int) -> list[Any]:
        if depth > _MAX_DEPTH:
            return []
        least = int(schema.get("minItems", 1))
        size = self._rng.randint(least, max(least, min(3, schema.get("maxItems", 3))))
        return [self.value(schema.get("items", {}), depth + 1) for _ in range(size)]

    def _text(self, schema: Mapping[str, Any]) -> str:
        choices: Sequence[Any] = self._rng.choice((self._words, self._numbers))
        text = str(self._rng.choice(choices)).ljust(int(schema.get("minLength", 0)), "x")
        return text[: int(schema.get("maxLength", len(text)))]
