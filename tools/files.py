"""Tools that read and change files in the working directory of the trajectory's sandbox.

Paths are relative to it; the sandbox refuses those that lead out. Text is edited by quoting it, as
models do it reliably, and a quotation must fit in exactly one place.
"""

import math
import shlex
from pathlib import PurePosixPath
from typing import Annotated

from pydantic import Field

from agentgym.errors import ToolError
from agentgym.tools.base import Tool, tool
from agentgym.tools.context import ToolContext
from agentgym.tools.sandbox.base import Sandbox

_MAX_ENTRIES = 200
_MAX_SEARCHED = 1000


@tool(timeout_s=math.inf, max_output_tokens=2048, parallel=False)
async def read_file(
    path: str,
    context: ToolContext,
    first_line: Annotated[int, Field(ge=1)] = 1,
    last_line: Annotated[int, Field(ge=-1)] = -1,
) -> str:
    """Read a text file, or some of its lines, with line numbers.

    Args:
        path: Relative to the working directory.
        first_line: First line to show, counted from 1.
        last_line: Last line to show; -1 for the end of the file.
    """
    lines = _split(await _read(context, path))
    if first_line > max(len(lines), 1):
        raise ToolError(f"{path} has {len(lines)} lines, so there is no line {first_line}")
    end = len(lines) if last_line == -1 else last_line
    shown = enumerate(lines[first_line - 1 : end], start=first_line)
    return "\n".join(f"{number}\t{line}" for number, line in shown) or f"({path} is empty)"


@tool(timeout_s=math.inf, parallel=False)
async def write_file(path: str, content: str, context: ToolContext) -> str:
    """Create a file with this content, or replace the whole of it; makes missing folders.

    Args:
        path: Relative to the working directory.
        content: The file's whole text.
    """
    await _write(context, path, content)
    return f"wrote {path}: {_lines(content)}"


@tool(timeout_s=math.inf, parallel=False)
async def edit_file(path: str, old: str, new: str, context: ToolContext) -> str:
    """Replace one piece of a file's text by another.

    Args:
        path: Relative to the working directory.
        old: Text to replace, exactly as it stands there; it must occur once.
        new: What to put in its place.
    """
    text = await _read(context, path)
    count = text.count(old) if old else 0
    if count != 1:
        why = f"occurs {count} times" if count else "does not occur"
        raise ToolError(f"nothing was changed: the old text {why} in {path}; it must occur once")
    await _write(context, path, text.replace(old, new))
    line = text[: text.index(old)].count("\n") + 1
    return f"edited {path} at line {line}"


@tool(timeout_s=math.inf, parallel=False)
async def insert_lines(
    path: str, after_line: Annotated[int, Field(ge=0)], text: str, context: ToolContext
) -> str:
    """Insert lines into a file.

    Args:
        path: Relative to the working directory.
        after_line: The line after which they go; 0 for the start of the file.
        text: The lines.
    """
    lines = _split(await _read(context, path))
    if after_line > len(lines):
        raise ToolError(f"{path} has {len(lines)} lines, so there is no line {after_line}")
    lines[after_line:after_line] = _split(text)
    await _write(context, path, "\n".join(lines) + "\n")
    return f"inserted {_lines(text)} into {path}"


@tool(timeout_s=math.inf, parallel=False)
async def list_files(context: ToolContext, path: str = ".") -> str:
    """List the files under a folder, with their sizes; hidden folders are left out.

    Args:
        path: The folder, relative to the working directory.
    """
    folder = shlex.quote(f"./{inside(path)}")
    command = (
        f"[ -d {folder} ] && find {folder} -name '.?*' -prune -o -type f -printf '%s\\t%p\\n'"
        f" | head -n {_MAX_SEARCHED}"
    )
    result = await (await _sandbox(context)).run_shell(command)
    if not result.ok:
        raise ToolError(f"there is no folder {path!r}")
    found = [line.partition("\t") for line in result.stdout.splitlines()]
    named = sorted((str(PurePosixPath(name)), size) for size, _, name in found)
    shown = [f"{name}\t{size} bytes" for name, size in named[:_MAX_ENTRIES]]
    more = ["(there are more)"] if len(found) > _MAX_ENTRIES else []
    return "\n".join(shown + more) or "(no files)"


files: tuple[Tool, ...] = (read_file, write_file, edit_file, insert_lines, list_files)
"""All of them, for `ToolEnv.tools`."""


def inside(path: str) -> PurePosixPath:
    """The path, if it names something under the working directory.

    Raises:
        ToolError: it is absolute, or goes up.
    """
    pure = PurePosixPath(path)
    if pure.is_absolute() or ".." in pure.parts or "\0" in path:
        raise ToolError(f"path {path!r} must be relative to the working directory, without '..'")
    return pure


async def _read(context: ToolContext, path: str) -> str:
    inside(path)
    data = await (await _sandbox(context)).read_file(path)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ToolError(f"{path} is no text file: byte {error.start} is not UTF-8") from error


async def _write(context: ToolContext, path: str, text: str) -> None:
    inside(path)
    await (await _sandbox(context)).write_file(path, text.encode("utf-8", "replace"))


async def _sandbox(context: ToolContext) -> Sandbox:
    return await context.sandbox.get()


def _split(text: str) -> list[str]:
    """Its lines; a newline at the end begins no other one."""
    return text.removesuffix("\n").split("\n") if text else []


def _lines(text: str) -> str:
    count = len(_split(text))
    return f"{count} line{'' if count == 1 else 's'}"
