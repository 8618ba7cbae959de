"""`agentgym tools`: what an agent can call."""

import json
import math
from typing import Any

from rich.console import Console
from rich.table import Table

from agentgym.commands import Command
from agentgym.commands.sections import PluginSection
from agentgym.tools import TOOLS, Tool


class ToolsConfig(PluginSection):
    """List the registered tools."""

    names: bool = False
    """Bare names, one per line."""
    json_: bool = False
    """The schemas that a model is shown, as JSON."""


def tools(settings: ToolsConfig) -> None:
    """Print the tools."""
    settings.load_plugins()
    if settings.names:
        print("\n".join(TOOLS.names()))
        return
    found = {name: TOOLS.get(name) for name in TOOLS.names()}
    if settings.json_:
        schemas = [tool.to_schema() for tool in found.values()]
        print(json.dumps(schemas, indent=2, ensure_ascii=False))
        return
    Console().print(_table(found))


def _table(found: dict[str, Tool]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("tool", "arguments", "timeout", "output", "description"):
        table.add_column(title, overflow="fold")
    for name, tool in found.items():
        timeout = f"{tool.timeout_s:g} s" if math.isfinite(tool.timeout_s) else "none"
        limits = (timeout, f"{tool.max_output_tokens} tokens")
        table.add_row(name, _arguments(tool.parameters), *limits, tool.description)
    return table


def _arguments(schema: dict[str, Any]) -> str:
    required = schema.get("required", [])
    return ", ".join(
        name + ("" if name in required else "?") + f": {argument.get('type', 'any')}"
        for name, argument in schema.get("properties", {}).items()
    )


COMMAND = Command(ToolsConfig, tools)
