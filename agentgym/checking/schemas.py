"""Checks of tools: can a model know from the schema how to call them?"""

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any

from agentgym.checking.arguments import random_arguments
from agentgym.checking.report import Findings
from agentgym.checking.subject import Subject
from agentgym.tools import Tool, ToolContext
from agentgym.tools.sandbox.lazy import LazySandbox

_ROUNDS = 3


async def tools(subject: Subject) -> Findings:
    """Names are unique, and each tool says what it takes."""
    env = subject.make()
    with subject.asking("tools"):
        given = tuple(env.tools)
    subject.discard(env)
    faults = [
        f"tools must be a tuple of Tool, got {tool!r}: decorate the function with @tool"
        for tool in given
        if not isinstance(tool, Tool)
    ]
    if faults:
        return Findings(faults)
    if not given:
        return Findings(note="none")
    counts = Counter(tool.name for tool in given)
    faults += [f"two tools are called {name!r}" for name, count in counts.items() if count > 1]
    found = Findings(faults, note=", ".join(counts))
    for tool in given:
        own = schema_findings(tool)
        found.faults += own.faults
        found.warnings += own.warnings
    return found


def schema_findings(tool: Tool) -> Findings:
    """What is wrong with what the model is told about a tool."""
    found = Findings(_schema_faults(tool))
    if not tool.description.strip():
        found.warnings.append(f"tool {tool.name!r} has no description: give it a docstring")
    if not found.faults:
        found.warnings += [
            f"tool {tool.name!r}: argument {name!r} has no description: add it to 'Args:'"
            for name, described in tool.parameters["properties"].items()
            if not described.get("description")
        ]
    return found


def _schema_faults(tool: Tool) -> list[str]:
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError

    start, schema = f"tool {tool.name!r}: ", tool.parameters
    try:
        json.dumps(schema, allow_nan=False)
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        where = ".".join(map(str, error.absolute_path))
        return [f"{start}no valid JSON schema: {where}: {error.message}"]
    except (TypeError, ValueError) as error:
        return [f"{start}the schema is no JSON: {error}"]
    if schema.get("type") != "object" or not isinstance(schema.get("properties"), dict):
        return [f"{start}the schema must be an object with properties, got {schema}"]
    unknown = set(schema.get("required", [])) - set(schema["properties"])
    if unknown:
        return [f"{start}required argument {min(unknown)!r} is not among the properties"]
    return _refused_samples(tool)


def _refused_samples(tool: Tool) -> list[str]:
    """Arguments that fit the schema must be accepted by the validation."""
    for round_number in range(_ROUNDS):
        arguments = random_arguments(tool.parameters, "word 1 2", Random(round_number))
        try:
            tool.signature.validate(arguments)
        except ValueError as error:
            if _has_limits(tool.parameters):
                return []
            return [
                f"tool {tool.name!r}: arguments that fit the schema are refused: {arguments}: "
                f"{error}; the schema must describe what the function takes"
            ]
    return []


def _has_limits(schema: Any) -> bool:
    """Whether values are bounded by more than a type, which samples may miss."""
    text = json.dumps(schema)
    words = ("pattern", "format", "multipleOf", "minimum", "maximum", "oneOf", "allOf", "Length")
    return any(f'{word}"' in text for word in words)


async def tool_answers(tool: Tool, *, timeout_s: float) -> Findings:
    """Calls are answered with text: fitting arguments, and ones that do not fit."""
    found = Findings()
    for round_number in range(_ROUNDS):
        arguments = random_arguments(tool.parameters, "word 1 2", Random(round_number))
        async with LazySandbox() as sandbox:
            context = ToolContext(rng=Random(round_number), sandbox=sandbox)
            result = await asyncio.wait_for(tool.call(arguments, context), timeout_s)
        if result.error == "timeout":
            found.faults.append(f"{arguments}: {result.content}")
        elif result.error == "tool_error" and "failed: " in result.content:
            found.warnings.append(
                f"{arguments}: {result.content}; raise ToolError with what to do instead"
            )
    refused = await asyncio.wait_for(tool.call({"no such argument": 1}, ToolContext()), timeout_s)
    if refused.error != "bad_arguments":
        found.faults.append(f"an unknown argument was answered with {refused.content!r}")
    return found


def names(tools: Sequence[Tool]) -> str:
    """For messages."""
    return ", ".join(tool.name for tool in tools) or "none"
