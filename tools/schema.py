"""From a function's signature and docstring to what the model reads and what its calls must be.

Arguments are checked in pydantic's strict JSON mode: what JSON can say of a type is accepted, and
nothing is converted that the model did not write.
"""

import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, NotRequired, get_args, get_type_hints

from docstring_parser import DocstringStyle, parse
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import ErrorDetails, PydanticSerializationError, to_jsonable_python
from typing_extensions import TypedDict

from agentgym.errors import ConfigError
from agentgym.tools.context import ToolContext

_MAX_SHOWN = 80
_MAX_ERRORS = 5


class ArgumentError(ValueError):
    """The arguments of a call do not fit; the text names each one that is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """What a function takes, apart from its context."""

    description: str
    json_schema: dict[str, Any]
    """Of the arguments, as one object."""
    adapter: TypeAdapter[dict[str, Any]]
    context_parameter: str | None
    """Name of the parameter that gets the `ToolContext`."""

    def validate(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments as the function's own types; defaults are left to the function.

        Raises:
            ArgumentError: one is unknown, missing, or of another type.
        """
        try:
            return self.adapter.validate_json(json.dumps(dict(arguments)), strict=True)
        except ValidationError as error:
            raise ArgumentError(self._explain(error)) from error
        except (TypeError, ValueError, RecursionError) as error:
            raise ArgumentError(f"the arguments are not JSON: {error}") from error

    def _explain(self, error: ValidationError) -> str:
        problems = error.errors(include_url=False, include_context=False)
        texts = [self._explain_one(problem) for problem in problems[:_MAX_ERRORS]]
        if len(problems) > _MAX_ERRORS:
            texts.append(f"and {len(problems) - _MAX_ERRORS} more")
        return "; ".join(texts)

    def _explain_one(self, problem: ErrorDetails) -> str:
        name = ".".join(map(str, problem["loc"]))
        if not name:
            return f"the arguments cannot be read: {problem['msg']}"
        if problem["type"] == "missing":
            return f"argument {name!r} is missing"
        if problem["type"] == "extra_forbidden":
            known = ", ".join(self.json_schema["properties"]) or "none"
            return f"unknown argument {name!r} (known: {known})"
        return f"argument {name!r}: {problem['msg']}, got {_shorten(repr(problem['input']))}"


def read_signature(function: Callable[..., Any], name: str) -> Signature:
    """What the model has to know of a function.

    Args:
        function: every parameter typed; described in a docstring of Google style.
        name: of the tool, for messages.

    Raises:
        ConfigError: a parameter has no type, a type has no JSON schema, or the function takes
            arguments that cannot be passed by name.
    """
    hints = _type_hints(function, name)
    parameters = inspect.signature(function).parameters
    for parameter in parameters.values():
        _check_parameter(parameter, hints, name)
    contexts = [key for key in parameters if ToolContext in (hints[key], *get_args(hints[key]))]
    doc = parse(inspect.getdoc(function) or "", DocstringStyle.GOOGLE)
    described = {param.arg_name: param.description or "" for param in doc.params}
    fields = {
        key: _field(parameter, hints[key], described.get(key))
        for key, parameter in parameters.items()
        if key not in contexts
    }
    adapter = _adapter(fields, name)
    return Signature(
        description="\n\n".join(filter(None, (doc.short_description, doc.long_description))),
        json_schema=_json_schema(adapter, parameters, name),
        adapter=adapter,
        context_parameter=contexts[0] if contexts else None,
    )


def _type_hints(function: Callable[..., Any], name: str) -> dict[str, Any]:
    try:
        return get_type_hints(function, include_extras=True)
    except (NameError, TypeError) as error:
        raise ConfigError(f"tool {name!r}: its annotations cannot be read: {error}") from error


def _check_parameter(parameter: inspect.Parameter, hints: dict[str, Any], name: str) -> None:
    if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
        raise ConfigError(
            f"tool {name!r}: parameter {parameter.name!r} is {parameter.kind.description}, "
            "but a model passes arguments by name"
        )
    if parameter.name not in hints:
        raise ConfigError(
            f"tool {name!r}: parameter {parameter.name!r} needs a type annotation"
            + (" (for a method, use tool(instance.method))" if parameter.name == "self" else "")
        )


def _field(parameter: inspect.Parameter, hint: Any, description: str | None) -> Any:
    annotated = Annotated[hint, Field(description=description)] if description else hint
    return annotated if parameter.default is parameter.empty else NotRequired[annotated]


def _adapter(fields: dict[str, Any], name: str) -> TypeAdapter[dict[str, Any]]:
    typed_dict: Any = TypedDict
    arguments = typed_dict("arguments", fields)
    arguments.__pydantic_config__ = ConfigDict(extra="forbid")
    try:
        return TypeAdapter(arguments)
    except PydanticUserError as error:
        raise ConfigError(
            f"tool {name!r}: a parameter's type cannot be validated: {error}"
        ) from error


class _Untitled(GenerateJsonSchema):
    """Leaves out titles, which only repeat the names."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def _json_schema(
    adapter: TypeAdapter[dict[str, Any]], parameters: Mapping[str, inspect.Parameter], name: str
) -> dict[str, Any]:
    try:
        schema = adapter.json_schema(schema_generator=_Untitled)
    except PydanticUserError as error:
        raise ConfigError(
            f"tool {name!r}: a parameter's type has no JSON schema: {error}"
        ) from error
    properties = schema.get("properties", {})
    for key, described in properties.items():
        if parameters[key].default is not inspect.Parameter.empty:
            described |= _default(parameters[key].default)
    ordered = {"type": "object", "properties": properties, "required": schema.get("required", [])}
    return ordered | ({"$defs": schema["$defs"]} if "$defs" in schema else {})


def _default(value: Any) -> dict[str, Any]:
    try:
        return {"default": to_jsonable_python(value)}
    except PydanticSerializationError:
        return {}


def _shorten(text: str) -> str:
    return text if len(text) <= _MAX_SHOWN else text[: _MAX_SHOWN - 3] + "..."
