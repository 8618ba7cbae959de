"""Slots are handed out in order, between loops, and never lost."""

import asyncio
import threading

import pytest

from agentgym.deadlines import bounded
from agentgym.errors import ConfigError
from agentgym.tools.sandbox.host.slots import Slots


async def test_no_more_run_than_there_are_slots() -> None:
    """Else every program's clock would measure the others."""
    slots, running, peak = Slots(2), 0, 0

    async def work() -> None:
        nonlocal running, peak
        async with slots.take():
            running += 1
            peak = max(peak, running)
            await asyncio.sleep(0.001)
            running -= 1

    await asyncio.gather(*(work() for _ in range(20)))

    assert peak == 2


async def test_alone_means_alone() -> None:
    """A call that is repeated must not be disturbed again."""
    slots, running = Slots(3), 0
    seen: list[int] = []

    async def work(alone: bool) -> None:
        nonlocal running
        async with slots.take(alone=alone):
            running += 1
            if alone:
                seen.append(running)
            await asyncio.sleep(0.001)
            running -= 1

    await asyncio.gather(*(work(n % 3 == 0) for n in range(12)))

    assert seen == [1, 1, 1, 1]


async def test_a_cancelled_wait_loses_no_slot() -> None:
    """Whether it is cancelled while it waits or as it is being served."""
    slots = Slots(1)
    for pauses in range(4):
        async with slots.take():
            waiting = asyncio.create_task(_hold(slots))
            await asyncio.sleep(0)
        for _ in range(pauses):
            await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)

    async with asyncio.timeout(1), slots.take() as waited_s:
        assert waited_s < 1


async def _hold(slots: Slots) -> None:
    async with slots.take():
        await asyncio.sleep(0)


async def test_the_wait_is_told() -> None:
    """It is no part of anybody's budget."""
    slots = Slots(1)

    async def work() -> float:
        async with slots.take() as waited_s:
            await asyncio.sleep(0.05)
            return waited_s

    first, second = await asyncio.gather(work(), work())

    assert first < 0.04 < second


def test_loops_in_different_threads_share_slots() -> None:
    """Training and a synchronous caller have a loop each."""
    slots, lock, running, peak = Slots(1), threading.Lock(), 0, 0

    async def work() -> None:
        nonlocal running, peak
        for _ in range(20):
            async with slots.take():
                with lock:
                    running += 1
                    peak = max(peak, running)
                await asyncio.sleep(0)
                with lock:
                    running -= 1

    threads = [threading.Thread(target=lambda: asyncio.run(work())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)

    assert not any(thread.is_alive() for thread in threads)
    assert peak == 1


def test_no_slots_are_refused() -> None:
    """Everything would wait for ever."""
    with pytest.raises(ConfigError, match="at least 1, got 0"):
        Slots(0)


async def test_no_deadline_counts_the_wait() -> None:
    """Else programs that use up their time would cost others theirs."""
    slots = Slots(1)

    async def run(seconds: float) -> None:
        async with slots.take():
            await asyncio.sleep(seconds)

    await asyncio.gather(*(bounded(run(0.1), 0.25) for _ in range(5)))
