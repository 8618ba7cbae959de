"""Answers every call of a turn, in the order of the calls."""

import asyncio
from collections.abc import Coroutine, Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from agentgym.errors import ConfigError
from agentgym.messages import MalformedCall, Message, ToolCall, ToolResult
from agentgym.tools.base import Tool
from agentgym.tools.context import ToolContext


async def run_calls(
    tools: Iterable[Tool], message: Message, context: ToolContext | None = None
) -> list[ToolResult]:
    """One result per call of an assistant message, then one per call that could not be read.

    Calls run at the same time if every tool among them allows it, else one after another.

    Raises:
        ConfigError: two tools share a name.
        EpisodeError: a tool's surroundings failed.
    """
    known = by_name(tools)
    context = context or ToolContext()
    pending = [_run(known, call, context.for_call()) for call in message.tool_calls]
    called = [known[call.name] for call in message.tool_calls if call.name in known]
    if len(pending) > 1 and all(tool.parallel for tool in called):
        results = await _together(pending)
    else:
        results = [await one for one in pending]
    return results + [_refuse(call) for call in message.malformed_calls]


def by_name(tools: Iterable[Tool]) -> dict[str, Tool]:
    """Tools by name.

    Raises:
        ConfigError: two share one.
    """
    known: dict[str, Tool] = {}
    for tool in tools:
        if known.setdefault(tool.name, tool) is not tool:
            raise ConfigError(f"two tools are called {tool.name!r}; give one another name")
    return known


async def _run(known: Mapping[str, Tool], call: ToolCall, context: ToolContext) -> ToolResult:
    tool = known.get(call.name)
    if tool is None:
        text = _unknown(call.name, known)
        return ToolResult(call_id=call.id, name=call.name, content=text, error="unknown_tool")
    return await tool.call(call.arguments, context, call_id=call.id)


async def _together(pending: list[Coroutine[Any, Any, ToolResult]]) -> list[ToolResult]:
    tasks = [asyncio.create_task(one) for one in pending]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()


def _unknown(name: str, known: Mapping[str, Tool]) -> str:
    close = get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    return f"there is no tool {name[:64]!r}.{hint} Tools: {', '.join(known) or 'none'}."


def _refuse(call: MalformedCall) -> ToolResult:
    text = f"this tool call could not be read and was not run: {call.reason}"
    return ToolResult(call_id=call.id, name="", content=text, error="malformed")
