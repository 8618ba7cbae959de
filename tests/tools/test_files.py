"""Tools for files: edits by quotation, lines by number, no way out of the working directory."""

from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
from local_kit import provider

from agentgym.errors import ToolError
from agentgym.tools import Tool, ToolContext
from agentgym.tools.files import edit_file, files, insert_lines, list_files, read_file, write_file
from agentgym.tools.sandbox.base import SandboxSpec
from agentgym.tools.sandbox.lazy import LazySandbox
from agentgym.tools.sandbox.limits import Limits
from agentgym.tools.shell import shell

SMALL = SandboxSpec(limits=Limits(disk_mb=4, file_mb=2))
TEXT = "one\ntwo\nthree\n"


@pytest.fixture
async def context() -> AsyncIterator[ToolContext]:
    async with LazySandbox(SMALL, provider=provider()) as sandbox:
        context = ToolContext(sandbox=sandbox)
        await _do(context, write_file, path="a.txt", content=TEXT)
        yield context


async def _do(context: ToolContext, tool: Tool, **arguments: Any) -> str:
    result = await tool.call(arguments, context)
    assert result.error is None, result.content
    return result.content


async def _refused(context: ToolContext, tool: Tool, arguments: Mapping[str, Any]) -> str:
    result = await tool.call(arguments, context)
    assert result.error == "tool_error", result.content
    return result.content


async def _content(context: ToolContext, path: str = "a.txt") -> str:
    return (await (await context.sandbox.get()).read_file(path)).decode()


async def test_what_is_written_is_read(context: ToolContext) -> None:
    """Folders are made; nothing is changed on the way."""
    text = "ä\t\r\n\nno newline at the end"
    told = await _do(context, write_file, path="deep/er/b.txt", content=text)

    assert told == "wrote deep/er/b.txt: 3 lines"
    assert await _content(context, "deep/er/b.txt") == text
    assert await _do(context, write_file, path="empty", content="") == "wrote empty: 0 lines"
    assert await _do(context, read_file, path="empty") == "(empty is empty)"


@pytest.mark.parametrize(
    ("first", "last", "shown"),
    [
        (1, -1, "1\tone\n2\ttwo\n3\tthree"),
        (2, -1, "2\ttwo\n3\tthree"),
        (2, 2, "2\ttwo"),
        (1, 99, "1\tone\n2\ttwo\n3\tthree"),
        (3, 3, "3\tthree"),
    ],
)
async def test_lines_are_read_by_number(
    context: ToolContext, first: int, last: int, shown: str
) -> None:
    """Numbered, both ends included."""
    seen = await _do(context, read_file, path="a.txt", first_line=first, last_line=last)

    assert seen == shown


async def test_a_piece_that_occurs_once_is_replaced(context: ToolContext) -> None:
    """And the rest stays as it is."""
    assert await _do(context, edit_file, path="a.txt", old="two\n", new="2\n2\n") == (
        "edited a.txt at line 2"
    )
    assert await _content(context) == "one\n2\n2\nthree\n"


@pytest.mark.parametrize(
    ("old", "words"), [("four", "does not occur"), ("", "does not occur"), ("o", "occurs 2 times")]
)
async def test_a_piece_that_is_not_unique_changes_nothing(
    context: ToolContext, old: str, words: str
) -> None:
    """A guess would spoil the file in silence."""
    seen = await _refused(context, edit_file, {"path": "a.txt", "old": old, "new": "x"})

    assert words in seen
    assert await _content(context) == TEXT


@pytest.mark.parametrize(
    ("after", "text", "content"),
    [
        (0, "zero", "zero\none\ntwo\nthree\n"),
        (2, "x\ny\n", "one\ntwo\nx\ny\nthree\n"),
        (3, "four", "one\ntwo\nthree\nfour\n"),
    ],
)
async def test_lines_are_inserted(
    context: ToolContext, after: int, text: str, content: str
) -> None:
    """At the start, between, at the end."""
    await _do(context, insert_lines, path="a.txt", after_line=after, text=text)

    assert await _content(context) == content


async def test_files_are_listed(context: ToolContext) -> None:
    """With sizes, sorted; folders of tools are left out, and links are not followed."""
    await _do(context, write_file, path="src/-b.py", content="x = 1\n")
    await _do(context, shell, command="mkdir .git; echo > .git/config; ln -s /etc etc; ln -s / up")

    assert await _do(context, list_files) == "a.txt\t14 bytes\nsrc/-b.py\t6 bytes"
    assert await _do(context, list_files, path="src") == "src/-b.py\t6 bytes"
    assert "no folder" in await _refused(context, list_files, {"path": "nope"})
    assert "no folder" in await _refused(context, list_files, {"path": "a.txt"})
    assert "passwd" not in (await list_files.call({"path": "etc"}, context)).content
    many = "for n in $(seq 300); do : > f$n; done; mkdir void"
    await _do(context, shell, command=many)
    assert (await _do(context, list_files)).endswith("(there are more)")
    assert await _do(context, list_files, path="void") == "(no files)"


OUTSIDE = ["/etc/passwd", "../x", "src/../../x", "..", "/", "a\0b", "", ".", "src/.."]


@pytest.mark.parametrize("path", OUTSIDE)
async def test_paths_that_lead_out_are_refused(context: ToolContext, path: str) -> None:
    """By every tool, and by the sandbox itself, which does not trust the tools."""
    for tool, more in [
        (read_file, {}),
        (write_file, {"content": "x"}),
        (edit_file, {"old": "a", "new": "b"}),
        (insert_lines, {"after_line": 0, "text": "x"}),
    ]:
        await _refused(context, tool, {"path": path, **more})
    sandbox = await context.sandbox.get()
    with pytest.raises(ToolError):
        await sandbox.read_file(path)
    with pytest.raises(ToolError):
        await sandbox.write_file(path, b"x")


@pytest.mark.parametrize(
    "command",
    [
        "ln -s /etc/passwd trap",
        "ln -s /etc trapped; ln -s trapped/passwd trap",
        "mkfifo trap",
        "mkdir trap",
        "ln -s trap trap",
    ],
)
async def test_what_is_no_regular_file_is_refused(context: ToolContext, command: str) -> None:
    """A link leads elsewhere, a pipe would hold the reader up for ever."""
    await _do(context, shell, command=command)

    await _refused(context, read_file, {"path": "trap"})
    await _refused(context, write_file, {"path": "trap", "content": "x"})


async def test_a_folder_that_is_a_link_is_refused(context: ToolContext) -> None:
    """Each part of a path is walked, not only its end."""
    await _do(context, shell, command="ln -s /etc out; ln -s . self")

    await _refused(context, read_file, {"path": "out/passwd"})
    await _refused(context, read_file, {"path": "self/a.txt"})
    await _refused(context, write_file, {"path": "self/new.txt", "content": "x"})


async def test_what_does_not_fit_is_told(context: ToolContext) -> None:
    """A full disk and a large file are the policy's to deal with."""
    await _refused(context, write_file, {"path": "big", "content": "x" * (3 * 2**20)})
    await _do(context, shell, command="head -c 1900000 /dev/zero > big")
    assert "larger than" in await _refused(context, read_file, {"path": "big"})
    await _do(context, shell, command="head -c 9 /dev/zero | tr '\\0' '\\377' > binary")
    assert "no text file" in await _refused(context, read_file, {"path": "binary"})


def test_every_tool_says_what_it_takes() -> None:
    """A model reads nothing but the schema."""
    for tool in files:
        properties = tool.parameters["properties"]
        assert all(part.get("description") for part in properties.values())
        assert "context" not in properties
