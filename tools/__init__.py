"""Tools an agent can call: typed functions with a schema, validation and limits."""

if __name__ != "agentgym.tools":
    raise ImportError("import agentgym.tools, not tools: this folder is a part of agentgym")

from agentgym.registry import TOOLS
from agentgym.tools.base import Tool, tool
from agentgym.tools.calls import run_calls
from agentgym.tools.context import ToolContext

TOOLS.register("calculator", "agentgym.tools.calculator:calculator")

__all__ = ["TOOLS", "Tool", "ToolContext", "run_calls", "tool"]
