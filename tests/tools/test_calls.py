"""The calls of one turn: all answered, in order, together where they may be."""

import asyncio

import pytest

from agentgym.errors import ConfigError, SandboxError
from agentgym.messages import MalformedCall, Message, ToolCall, assistant
from agentgym.tools import ToolContext, run_calls, tool


@tool
async def slow(v: str) -> str:
    """Waits."""
    await asyncio.sleep(0.2)
    return v


@tool
def fast(v: str) -> str:
    """Does not."""
    return v


async def test_parallel_calls_keep_their_order() -> None:
    """The model matches results to calls by position as well as by id."""
    met = asyncio.Barrier(2)

    @tool
    async def meet(v: str) -> str:
        """Waits for the other call."""
        await met.wait()
        return v

    calls = assistant("", ("meet", {"v": "A"}), ("fast", {"v": "B"}), ("meet", {"v": "C"}))
    async with asyncio.timeout(20):
        results = await run_calls([meet, fast], calls)

    assert [result.content for result in results] == ["A", "B", "C"]
    assert [result.call_id for result in results] == ["call_0", "call_1", "call_2"]


async def test_one_tool_that_is_not_parallel_makes_the_turn_sequential() -> None:
    """A tool with state sees the calls in the order the model wrote them."""
    seen: list[str] = []

    @tool(parallel=False)
    async def note(v: str, wait: float) -> None:
        await asyncio.sleep(wait)
        seen.append(v)

    await run_calls(
        [note], assistant("", ("note", {"v": "A", "wait": 0.02}), ("note", {"v": "B", "wait": 0.0}))
    )
    assert seen == ["A", "B"]


async def test_unknown_tools_and_malformed_calls_are_answered() -> None:
    """The model must learn of every mistake, under the id of its call."""
    message = Message(
        role="assistant",
        tool_calls=(
            ToolCall(id="a", name="fasst", arguments={"v": "x"}),
            ToolCall(id="b", name="fast", arguments={"v": "x"}),
        ),
        malformed_calls=(MalformedCall(id="c", text="{", reason="it ends too early"),),
    )
    results = await run_calls([fast, slow], message)

    assert [(r.call_id, r.error) for r in results] == [
        ("a", "unknown_tool"),
        ("b", None),
        ("c", "malformed"),
    ]
    assert "'fasst'" in results[0].content
    assert "Did you mean 'fast'?" in results[0].content
    assert "slow" in results[0].content
    assert "it ends too early" in results[2].content


async def test_parallel_calls_draw_the_same_numbers_every_time() -> None:
    """A seeded trajectory is reproducible whichever call finishes first."""

    @tool
    async def draw(wait: float, context: ToolContext) -> float:
        await asyncio.sleep(wait)
        return context.rng.random()

    async def play(*waits: float) -> list[str]:
        context = ToolContext()
        context.rng.seed(5)
        results = await run_calls(
            [draw], assistant("", *(("draw", {"wait": w}) for w in waits)), context
        )
        return [result.content for result in results]

    assert await play(0.0, 0.02) == await play(0.02, 0.0)
    assert len(set(await play(0.0, 0.0))) == 2


async def test_a_dead_sandbox_stops_the_calls_beside_it() -> None:
    """The trajectory is over; nothing of it may go on."""
    finished = []

    @tool
    async def work() -> None:
        await asyncio.sleep(0.2)
        finished.append(1)

    @tool
    async def die() -> None:
        raise SandboxError("gone")

    with pytest.raises(SandboxError):
        await run_calls([work, die], assistant("", ("work", {}), ("die", {})))
    await asyncio.sleep(0.3)
    assert finished == []


async def test_two_tools_of_one_name_are_refused() -> None:
    """Which of them would be run?"""
    other = tool(name="fast")(slow.function)

    with pytest.raises(ConfigError, match="two tools are called 'fast'"):
        await run_calls([fast, other], assistant("", ("fast", {"v": "x"})))
