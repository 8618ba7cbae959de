"""The tool `python`: what a policy sees of its cells."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from local_kit import provider

from agentgym.errors import ConfigError, SandboxError
from agentgym.messages import assistant
from agentgym.tools import TOOLS, ToolContext, run_calls
from agentgym.tools.python import NUMPY, python, python_numpy
from agentgym.tools.sandbox.base import SandboxSpec
from agentgym.tools.sandbox.lazy import LazySandbox
from agentgym.tools.sandbox.limits import Limits

QUICK = SandboxSpec(limits=Limits(cpu_s=0.5, wall_s=1.0, memory_mb=256, flood_mb=4))


@pytest.fixture
async def context() -> AsyncIterator[ToolContext]:
    async with LazySandbox(QUICK, provider=provider()) as sandbox:
        yield ToolContext(sandbox=sandbox)


async def _see(context: ToolContext, code: str) -> str:
    result = await python.call({"code": code}, context)
    assert result.error is None
    return result.content


@pytest.mark.parametrize(
    ("code", "seen"),
    [
        ("2 + 3", "5"),
        ("'a' * 3", "'aaa'"),
        ("print('hi')", "hi"),
        ("print('hi')\n[1, 2]", "hi\n[1, 2]"),
        ("print('a', end='')\n7", "a\n7"),
        ("print('ü€😀')", "ü€😀"),
        ("import sys; print('out'); print('err', file=sys.stderr); 7", "out\n7\n[stderr]\nerr"),
        ("import sys; print('err', file=sys.stderr)", "err"),
    ],
)
async def test_a_cell_shows_what_a_terminal_would(
    context: ToolContext, code: str, seen: str
) -> None:
    """Printed text, then the value of a last expression."""
    assert await _see(context, code) == seen


@pytest.mark.parametrize("code", ["x = 5", "None", "", "import math", "print(end='')", "pass"])
async def test_a_cell_that_shows_nothing_says_so(context: ToolContext, code: str) -> None:
    """An empty answer makes a policy try the same again."""
    assert "print" in await _see(context, code)


async def test_names_files_and_imports_stay(context: ToolContext) -> None:
    """Cells build on each other, an exception between them too."""
    await _see(context, "import math\nx = 2\nopen('note.txt', 'w').write('kept')")
    await _see(context, "x = 3\n1 / 0")

    assert await _see(context, "x, math.pi > 3, open('note.txt').read()") == "(3, True, 'kept')"


async def test_a_traceback_is_that_of_the_code(context: ToolContext) -> None:
    """Frames of the sandbox teach nothing and differ between back ends."""
    seen = await _see(context, "def f(n):\n    return 1 / n\nf(0)")

    assert seen.startswith('Traceback (most recent call last):\n  File "cell 1", line 3')
    assert seen.endswith("ZeroDivisionError: division by zero")
    assert seen.count("File") == 2
    syntax = await _see(context, "1 +")
    assert syntax.startswith('  File "cell 2", line 1')
    assert syntax.endswith("SyntaxError: invalid syntax")


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("while True: pass", "stopped after 0.5 s of processor time"),
        ("import time\ntime.sleep(60)", "stopped after 1 s: it slept or waited for too long"),
        ("x = bytearray(10**9)", "out of memory: at most 256 MB"),
        ("while True: print('x' * 1000)", "stopped: it printed more than 4 MB"),
        ("import os\nos.abort()", "killed by SIGABRT"),
        ("import sys\nsys.exit(3)", "exit code 3"),
    ],
)
async def test_the_end_is_told_in_words(context: ToolContext, code: str, words: str) -> None:
    """A limit is the code's doing, so that the policy is told which; the next cell runs."""
    await _see(context, "kept = 1")
    seen = await _see(context, code)

    assert words in seen
    lost = "its names are lost" in seen
    assert ("NameError" in await _see(context, "kept")) is lost


async def test_long_output_keeps_head_and_tail(context: ToolContext) -> None:
    """In the sandbox by bytes, in the tool by tokens."""
    seen = await _see(context, "print('head'); print('x' * 10**6); print('tail')")

    assert seen.startswith("head\n")
    assert seen.endswith("tail")
    assert "cut ..." in seen
    assert len(seen) < 20_000


async def test_what_is_no_text_is_shown_all_the_same(context: ToolContext) -> None:
    """Bytes that are no UTF-8, lone surrogates, terminal codes."""
    seen = await _see(context, "import os\nos.write(1, b'a\\xff\\xfeb\\0') and None")

    assert seen.startswith("a")
    seen.encode("utf-8")
    (await _see(context, "'\\ud83d'")).encode("utf-8")


async def test_calls_of_one_turn_run_in_their_order(context: ToolContext) -> None:
    """They share names, so that they cannot run side by side."""
    calls = [("python", {"code": f"x = {n}; x"}) for n in range(3)]
    calls.append(("python", {"code": "x"}))
    results = await run_calls([python], assistant("", *calls), context)

    assert [result.content for result in results] == ["0", "1", "2", "2"]


async def test_waiting_for_a_core_is_not_held_against_the_code() -> None:
    """Only what a call does in the sandbox counts, so the tool has no clock of its own."""
    contexts = [ToolContext(sandbox=LazySandbox(QUICK, provider=provider())) for _ in range(8)]
    code = "import time\nend = time.process_time() + 0.3\nwhile time.process_time() < end: pass\n7"
    try:
        seen = await asyncio.gather(*(_see(context, code) for context in contexts))
    finally:
        await asyncio.gather(*(context.sandbox.aclose() for context in contexts))

    assert seen == ["7"] * 8


async def test_numpy_is_there_if_the_spec_says_so() -> None:
    """And the model is told; without it the import fails as anywhere."""
    assert "numpy" in python_numpy.description
    assert "numpy" not in python.description
    async with LazySandbox(NUMPY, provider=provider()) as sandbox:
        context = ToolContext(sandbox=sandbox)
        result = await python_numpy.call({"code": "import numpy\nnumpy.arange(3).sum()"}, context)
    assert result.content in ("3", "np.int64(3)")


async def test_numpy_is_not_there_otherwise(context: ToolContext) -> None:
    """Nothing of this project's own installation can be imported."""
    assert "No module named 'numpy'" in await _see(context, "import numpy")
    assert "No module named 'agentgym'" in await _see(context, "import agentgym")


async def test_without_a_trajectory_there_is_no_sandbox() -> None:
    """Nobody could close it; the caller is told what to do."""
    with pytest.raises(ConfigError, match="ToolContext\\(sandbox=LazySandbox"):
        await python.call({"code": "1"})


async def test_a_closed_sandbox_is_no_observation(context: ToolContext) -> None:
    """What the infrastructure does is never told to the model."""
    assert await _see(context, "1") == "1"
    await context.sandbox.aclose()

    with pytest.raises(SandboxError):
        await python.call({"code": "1"}, context)


def test_the_tools_are_registered() -> None:
    """By name, for the command line and for plugins."""
    assert TOOLS.get("python") is python
    assert TOOLS.get("python_numpy") is python_numpy
    assert {"shell", "read_file", "write_file", "edit_file", "list_files"} <= set(TOOLS.names())
