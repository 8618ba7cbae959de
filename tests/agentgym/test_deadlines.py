"""Foreign coroutines: slow, rude, and in a loop that is busy with others."""

import asyncio
import time

import pytest

from agentgym.deadlines import SelfCancelledError, bounded, uncounted


async def many_awaits() -> str:
    for _ in range(10):
        await asyncio.sleep(0.005)
    return "done"


async def rude(pause_s: float, times: int) -> None:
    for _ in range(times):
        time.sleep(pause_s)  # noqa: ASYNC251 - it holds up the loop
        await asyncio.sleep(0)


@pytest.mark.parametrize(("pause_s", "times"), [(0.6, 1), (0.06, 6)])
async def test_a_busy_loop_is_not_the_fault_of_who_waits(pause_s: float, times: int) -> None:
    """Else one env that blocks the loop would fail the tools of all the others."""
    neighbour = asyncio.create_task(rude(pause_s, times))

    assert await bounded(many_awaits(), 0.3) == "done"
    await neighbour


async def test_what_hangs_ends_in_a_loop_that_stays_busy() -> None:
    neighbour = asyncio.create_task(rude(0.05, 100))
    started = time.monotonic()

    with pytest.raises(TimeoutError):
        await bounded(asyncio.sleep(60), 0.2)
    assert time.monotonic() - started < 1
    neighbour.cancel()


async def test_generator_exit_does_not_close_who_waits() -> None:
    """It would end every coroutine above, in the middle of its clean-up."""

    async def leave() -> None:
        raise GeneratorExit

    with pytest.raises(SelfCancelledError, match="GeneratorExit"):
        await bounded(leave(), 1)


def test_a_loop_ends_without_what_refuses_to_end() -> None:
    """`asyncio.run` waits for every task it knows of."""

    async def stay() -> None:
        end = time.monotonic() + 3
        while time.monotonic() < end:
            try:
                await asyncio.sleep(0.05)
            except asyncio.CancelledError:
                continue

    async def main() -> None:
        with pytest.raises(TimeoutError):
            await bounded(stay(), 0.05, grace_s=0.05)

    started = time.monotonic()
    asyncio.run(main())

    assert time.monotonic() - started < 1


async def test_waiting_for_a_turn_does_not_count() -> None:
    """Of an outer deadline either; waits at the same time are waited for once."""

    async def wait(seconds: float) -> None:
        with uncounted():
            await asyncio.sleep(seconds)

    async def work() -> str:
        await asyncio.gather(wait(0.3), wait(0.3))
        await bounded(wait(0.3), 0.1)
        await asyncio.sleep(0.05)
        return "done"

    assert await bounded(work(), 0.2) == "done"


async def test_what_hangs_after_its_turn_has_come_ends() -> None:
    """It gets what it was allowed, and no more."""

    async def work() -> None:
        with uncounted():
            await asyncio.sleep(0.3)
        await asyncio.sleep(60)

    started = time.monotonic()
    with pytest.raises(TimeoutError):
        await bounded(work(), 0.2)
    assert 0.45 < time.monotonic() - started < 2
