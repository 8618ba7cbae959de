"""Tools an agent can call: typed functions with a schema, validation and limits."""

if __name__ != "agentgym.tools":
    raise ImportError("import agentgym.tools, not tools: this folder is a part of agentgym")

from agentgym.registry import TOOLS
from agentgym.tools.base import Tool, tool
from agentgym.tools.calls import run_calls
from agentgym.tools.context import ToolContext

for _name, _path in {
    "calculator": "calculator:calculator",
    "edit_file": "files:edit_file",
    "insert_lines": "files:insert_lines",
    "list_files": "files:list_files",
    "python": "python:python",
    "python_numpy": "python:python_numpy",
    "read_file": "files:read_file",
    "shell": "shell:shell",
    "write_file": "files:write_file",
}.items():
    TOOLS.register(_name, f"agentgym.tools.{_path}")

__all__ = ["TOOLS", "Tool", "ToolContext", "run_calls", "tool"]
