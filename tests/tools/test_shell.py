"""The tool `shell`."""

from collections.abc import AsyncIterator

import pytest
from local_kit import provider

from agentgym.tools import ToolContext
from agentgym.tools.python import python
from agentgym.tools.sandbox.base import SandboxSpec
from agentgym.tools.sandbox.lazy import LazySandbox
from agentgym.tools.sandbox.limits import Limits
from agentgym.tools.shell import shell

QUICK = SandboxSpec(limits=Limits(cpu_s=0.5, wall_s=1.0))


@pytest.fixture
async def context() -> AsyncIterator[ToolContext]:
    async with LazySandbox(QUICK, provider=provider()) as sandbox:
        yield ToolContext(sandbox=sandbox)


async def _see(context: ToolContext, command: str) -> str:
    result = await shell.call({"command": command}, context)
    assert result.error is None
    return result.content


@pytest.mark.parametrize(
    ("command", "seen"),
    [
        ("echo hi", "hi"),
        ("echo out; echo err >&2", "out\n[stderr]\nerr"),
        ("true", "(no output)"),
        ("exit 3", "[exit code 3]"),
        ("false; echo $?", "1"),
        ("cat", "(no output)"),
        ("printf 'a\\nb'", "a\nb"),
        ("kill -9 $$", "[killed by SIGKILL]"),
        ("while :; do :; done", "[stopped after 0.5 s of processor time]"),
        ("sleep 60", "[stopped after 1 s: it slept or waited for too long]"),
        ("sleep 60 & echo done", "done"),
    ],
)
async def test_a_command_shows_its_streams_and_how_it_ended(
    context: ToolContext, command: str, seen: str
) -> None:
    """In words; a command that succeeds needs none."""
    assert await _see(context, command) == seen


async def test_files_stay_and_variables_do_not(context: ToolContext) -> None:
    """Each call is a shell of its own, in the folder of the cells."""
    await _see(context, "mkdir sub; cd sub; X=1; echo kept > ../note.txt")

    assert await _see(context, "cat note.txt; echo [$X]; ls") == "kept\n[]\nnote.txt\nsub"
    seen = await python.call({"code": "open('note.txt').read()"}, context)
    assert seen.content == "'kept\\n'"


async def test_an_unknown_command_is_an_observation(context: ToolContext) -> None:
    """With the shell's own words."""
    seen = await _see(context, "no-such-program")

    assert "not found" in seen
    assert seen.endswith("[exit code 127]")
