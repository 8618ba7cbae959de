"""A small MCP server for test_mcp.py: `python plain.py` speaks stdio, `plain.py PORT` HTTP."""

import os
import sys
import time
from typing import Annotated

from mcp.server.mcpserver import MCPServer
from mcp_types import ImageContent
from pydantic import Field

server = MCPServer("plain")
total = 0


@server.tool()
def add(a: int, b: Annotated[int, Field(ge=0)]) -> str:
    """Add two numbers."""
    return str(a + b)


@server.tool(name="files.read")
def read(path: str) -> str:
    """Read a file that is not there."""
    raise FileNotFoundError(path)


@server.tool()
def remember(amount: int) -> str:
    """Add to a sum that the session keeps."""
    global total
    total += amount
    return str(total)


@server.tool()
def table() -> dict[str, list[int]]:
    """Some structure."""
    return {"rows": [1, 2], "ö": [3]}


@server.tool()
def picture() -> ImageContent:
    """Something that cannot be read."""
    return ImageContent(data="aGk=", mime_type="image/png")


@server.tool()
def sleep(seconds: float) -> str:
    """Wait."""
    time.sleep(seconds)
    return "slept"


@server.tool()
def die() -> str:
    """End the server."""
    os._exit(3)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run("streamable-http", port=int(sys.argv[1]))
    else:
        server.run()
