"""Running tools: results, errors and limits, as the model gets to read them."""

import asyncio
import datetime
import decimal
import threading
import time
from dataclasses import dataclass
from typing import Any

import pytest

from agentgym.errors import ConfigError, MissingExtraError, SandboxError, ToolError
from agentgym.tools import Tool, ToolContext, tool


@dataclass
class City:
    name: str
    people: int


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("plain\ntext", "plain\ntext"),
        ("", ""),
        (None, "null"),
        (3.5, "3.5"),
        (7, "7"),
        (True, "true"),
        ({"a": 1, "b": "é"}, '{"a": 1, "b": "é"}'),
        ([1, None, "ü"], '[1, null, "ü"]'),
        ((1, 2), "[1, 2]"),
        (City("Köln", 2), '{"name": "Köln", "people": 2}'),
        (datetime.date(2026, 11, 29), "2026-11-29"),
        (decimal.Decimal("1.50"), "1.50"),
        ("half \ud83d of a pair", "half ? of a pair"),
    ],
)
async def test_results_are_text(value: Any, text: str) -> None:
    """A message holds a string; containers are JSON with their characters intact."""

    @tool
    def give() -> Any:
        return value

    result = await give.call({})

    assert (result.content, result.error) == (text, None)
    result.content.encode("utf-8")


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize(
    "error", [ValueError("bad x 3"), SystemExit("bad x 3"), KeyboardInterrupt("bad x 3")]
)
async def test_whatever_a_tool_raises_is_told_to_the_model(
    error: BaseException, is_async: bool
) -> None:
    """A tool must not be able to end the run."""

    def blocking() -> None:
        raise error

    async def awaiting() -> None:
        await asyncio.sleep(0)
        raise error

    result = await tool(name="boom")(awaiting if is_async else blocking).call({}, call_id="7")

    assert result.error == "tool_error"
    assert result.call_id == "7"
    assert result.content == f"tool 'boom' failed: {type(error).__name__}: bad x 3"


class Strange(BaseException):
    """No `Exception`, as some libraries' ways to cancel."""


async def test_no_class_of_error_gets_past_a_blocking_tool() -> None:
    """It runs in a thread of its own, where nothing else can be meant by it."""

    @tool
    def boom() -> None:
        raise Strange("x")

    assert (await boom.call({})).content == "tool 'boom' failed: Strange: x"


async def test_a_tool_says_itself_what_went_wrong() -> None:
    """`ToolError` is for the model, word for word."""

    @tool
    def refuse() -> None:
        raise ToolError("ask for something else")

    result = await refuse.call({})

    assert (result.content, result.error) == ("ask for something else", "tool_error")


@pytest.mark.parametrize("error", [SandboxError("gone"), MissingExtraError("search", "search")])
async def test_errors_that_are_not_the_models_leave(error: Exception) -> None:
    """A dead sandbox is no evidence about the policy, and a missing package no news for it."""

    @tool
    def use() -> None:
        raise error

    with pytest.raises(type(error)):
        await use.call({})


async def test_wrong_arguments_never_run_the_tool() -> None:
    """Nothing is repaired by guessing."""
    runs = []

    @tool
    def count(x: int) -> None:
        runs.append(x)

    result = await count.call({"x": "3", "y": 1})

    assert runs == []
    assert result.error == "bad_arguments"
    assert "'count'" in result.content
    assert "'x'" in result.content
    assert "'y'" in result.content


async def test_sync_tools_leave_the_event_loop_alone() -> None:
    """One slow tool must not stop every other trajectory."""

    @tool
    def slow() -> None:
        time.sleep(0.8)

    async def longest_gap() -> float:
        gaps, last = [], time.perf_counter()
        for _ in range(10):
            await asyncio.sleep(0.02)
            gaps.append(time.perf_counter() - last)
            last = time.perf_counter()
        return max(gaps)

    gap, _ = await asyncio.gather(longest_gap(), slow.call({}))
    assert gap < 0.7


@tool(timeout_s=0.05)
def hang_blocking() -> None:
    """Never returns."""
    threading.Event().wait()


@tool(timeout_s=0.05)
async def hang_awaiting() -> None:
    """Never returns."""
    await asyncio.Event().wait()


@tool(timeout_s=0.05)
async def hang_stubbornly() -> None:
    """Does not even stop when it is told to."""
    while True:
        try:
            await asyncio.sleep(1.0)
            return
        except asyncio.CancelledError:
            continue


@pytest.mark.parametrize("hanging", [hang_blocking, hang_awaiting, hang_stubbornly])
async def test_every_tool_has_a_timeout(hanging: Tool) -> None:
    """The trajectory goes on; who does not stop is left behind."""
    start = time.perf_counter()
    result = await hanging.call({})

    assert result.error == "timeout"
    assert result.content == f"tool {hanging.name!r}: timeout after 0.05 s"
    assert time.perf_counter() - start < 0.9


async def test_cancelling_a_trajectory_cancels_its_async_tool() -> None:
    """Nothing may go on after the episode."""
    ended = asyncio.Event()

    @tool
    async def wait() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    call = asyncio.create_task(wait.call({}))
    await asyncio.sleep(0.01)
    call.cancel()

    with pytest.raises(asyncio.CancelledError):
        await call
    await asyncio.wait_for(ended.wait(), 1)


async def test_a_tool_that_cancels_itself_does_not_end_the_trajectory() -> None:
    """Only the loop may cancel a trajectory."""

    @tool
    async def give_up() -> None:
        raise asyncio.CancelledError

    assert (await give_up.call({})).error == "tool_error"


async def test_the_context_reaches_the_tool() -> None:
    """State is the trajectory's, and so is chance."""

    @tool
    def roll(sides: int, context: ToolContext) -> int:
        context.state["rolls"] = context.state.get("rolls", 0) + 1
        return context.rng.randint(1, sides)

    context = ToolContext()
    rolls = []
    for _ in range(2):
        context.rng.seed(3)
        rolls.append((await roll.call({"sides": 1000}, context)).content)

    assert context.state == {"rolls": 2}
    assert rolls[0] == rolls[1]


async def test_results_are_cut_to_their_limit() -> None:
    """The limit holds for errors as well: whatever a tool says, the context stays safe."""

    @tool(max_output_tokens=16)
    def flood(raises: bool) -> str:
        if raises:
            raise ToolError("w" * 40)
        return "w" * 40

    context = ToolContext(count_tokens=len)
    for raises in (False, True):
        content = (await flood.call({"raises": raises}, context)).content
        assert len(content) == 16
        assert content.startswith("www")
        assert content.endswith("www")
        assert "…" in content


def test_options_are_checked_when_the_tool_is_made() -> None:
    """A limit that cannot hold is the author's mistake, not the model's."""

    def fine() -> None: ...

    assert tool(fine).name == "fine"
    assert tool(name="other", parallel=False)(fine).name == "other"
    with pytest.raises(ConfigError, match="tool name 'a b'"):
        tool(name="a b")(fine)
    with pytest.raises(ConfigError, match="timeout_s=0"):
        tool(timeout_s=0)(fine)
    with pytest.raises(ConfigError, match="max_output_tokens=3"):
        tool(max_output_tokens=3)(fine)


def test_the_function_stays_at_hand() -> None:
    """A tool's author tests the function, not the machinery."""

    @tool
    def double(x: int) -> int:
        return 2 * x

    assert double.function(4) == 8
