"""Calls as Qwen3-Coder and GLM write them, and the tools they are of."""

from typing import Any

import pytest

from agentgym.rendering import ParsedAction, ToolSchema, dialect

STRING = {"type": "string"}


def tool(name: str, required: tuple[str, ...] = (), **properties: dict[str, Any]) -> ToolSchema:
    """A tool with these arguments."""
    parameters = {"type": "object", "properties": properties, "required": list(required)}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


TOOLS = [
    tool("bash", ("command",), command=STRING),
    tool("search", ("query",), query=STRING, top_k={"type": "integer"}),
    tool("write_file", ("path", "content"), path=STRING, content=STRING),
    tool("list_files"),
    tool("move", ("x", "y"), x={"type": "integer"}, y={"type": "integer"}),
    tool(
        "configure",
        enabled={"type": "boolean"},
        ids={"type": "array"},
        options={"type": "object"},
        ratio={"type": "number"},
        count={"type": "integer"},
        label=STRING,
        note={"anyOf": [{"type": "string"}, {"type": "null"}]},
        any={},
    ),
]
Calls = list[tuple[str, dict[str, Any]]]


def read(name: str, text: str, **options: Any) -> ParsedAction:
    """One turn that ended by itself, read with all tools."""
    return dialect(name).parse(text, **{"finish_reason": "stop", "tools": TOOLS, **options})


def said(action: ParsedAction) -> Calls:
    """Names and arguments."""
    return [(call.name, call.arguments) for call in action.calls]


def qwen(name: str, **arguments: str) -> str:
    """A call as Qwen3-Coder writes it, from bare text."""
    parts = [f"<parameter={key}>\n{text}\n</parameter>\n" for key, text in arguments.items()]
    return f"<tool_call>\n<function={name}>\n{''.join(parts)}</function>\n</tool_call>"


def glm(name: str, **arguments: str) -> str:
    """A call as GLM-4.7 writes it, from bare text."""
    pairs = [
        f"<arg_key>{key}</arg_key><arg_value>{text}</arg_value>" for key, text in arguments.items()
    ]
    return f"<tool_call>{name}{''.join(pairs)}</tool_call>"


WRITERS = {"qwen3_coder": qwen, "glm": glm}
both = pytest.mark.parametrize("name", WRITERS)
