"""Tools that are defined elsewhere: by a schema and something to call, not by a typed function."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter

from agentgym.tools.base import Tool
from agentgym.tools.schema import ArgumentError, Signature

_ANY_OBJECT = TypeAdapter(dict[str, Any])
_MAX_PROBLEMS = 5
_MAX_SHOWN = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignSignature(Signature):
    """Checks arguments against the schema itself, if there is something to check them with."""

    check: Callable[[Mapping[str, Any]], list[str]] | None = None
    """What is wrong with the arguments; `None` where the other side says so."""

    def validate(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments as they are, handed on as `arguments`.

        Raises:
            ArgumentError: they do not fit the schema.
        """
        problems = [] if self.check is None else self.check(arguments)
        if problems:
            more = len(problems) - _MAX_PROBLEMS
            shown = problems[:_MAX_PROBLEMS] + ([f"and {more} more"] if more > 0 else [])
            raise ArgumentError("; ".join(shown))
        return {"arguments": dict(arguments)}


def foreign_tool(
    name: str,
    call: Callable[[dict[str, Any]], Awaitable[str]],
    *,
    description: str,
    parameters: Mapping[str, Any],
    check: Callable[[Mapping[str, Any]], list[str]] | None = None,
    limits: "Limits | None" = None,
) -> Tool:
    """A tool whose schema is passed through to the model as it stands.

    Args:
        name: what the model calls it.
        call: runs it with checked arguments.
        description: what the model is told.
        parameters: JSON schema of the arguments, one object.
        check: what is wrong with arguments, one text for each problem.
        limits: of a call.
    """
    limits = limits or Limits()

    async def function(arguments: dict[str, Any]) -> str:
        return await call(arguments)

    schema = dict(parameters)
    return Tool(
        name=name,
        description=description,
        parameters=schema,
        function=function,
        timeout_s=limits.timeout_s,
        max_output_tokens=limits.max_output_tokens,
        parallel=limits.parallel,
        signature=ForeignSignature(
            description=description,
            json_schema=schema,
            adapter=_ANY_OBJECT,
            context_parameter=None,
            check=check,
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Of one call of a tool."""

    timeout_s: float = 30.0
    max_output_tokens: int = 1024
    parallel: bool = True
    """Whether calls of one turn may run at the same time."""


def json_schema_check(schema: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], list[str]]:
    """What is wrong with arguments by a JSON schema, naming each argument.

    Needs `jsonschema`, which comes with the extra `mcp`. References are never looked up elsewhere.
    """
    from jsonschema import validators
    from referencing import Registry

    kind = validators.validator_for(dict(schema), default=validators.Draft202012Validator)
    validator = kind(dict(schema), registry=Registry())

    def check(arguments: Mapping[str, Any]) -> list[str]:
        errors = sorted(
            validator.iter_errors(dict(arguments)), key=lambda error: list(map(str, error.path))
        )
        return [_explain(error.absolute_path, error.message) for error in errors]

    return check


def _explain(path: Any, message: str) -> str:
    where = ".".join(map(str, path))
    text = message if len(message) <= _MAX_SHOWN else message[: _MAX_SHOWN - 3] + "..."
    return f"argument {where!r}: {text}" if where else text
