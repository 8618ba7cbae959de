"""Machines of E2B are few and cost money: how they are asked for, kept, and ended."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from e2b_kit import Fault, StandIn, stand_in
from sandbox_kit import wall

from agentgym.errors import SandboxError
from agentgym.tools.sandbox.e2b import E2BProvider
from agentgym.tools.sandbox.e2b.pace import Rate
from agentgym.tools.sandbox.e2b.service import Terms

pytestmark = pytest.mark.slow


def slow(*values: Any) -> Any:
    return pytest.param(*values, marks=pytest.mark.slow)


@pytest.fixture
async def service() -> AsyncIterator[StandIn]:
    async with stand_in(wall()) as service:
        yield service


@asynccontextmanager
async def provided(service: StandIn, **settings: Any) -> AsyncIterator[E2BProvider]:
    provider = E2BProvider(**({"per_second": 100} | service.settings | settings))
    try:
        yield provider
    finally:
        await provider.aclose()


async def until(condition: Any, seconds: float = 15.0) -> None:
    """Wait for something that happens by itself."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - it happens in another process
            await asyncio.sleep(0.02)


# being created


async def test_retry_after_is_honoured(service: StandIn):
    """A service that says when to come again is not asked before."""
    service.fail("create", Fault(status=429, retry_after=1))
    started = time.monotonic()
    async with provided(service) as provider:
        await (await provider.open()).close()

    assert time.monotonic() - started >= 1.0
    assert service.count("create") == 2


@pytest.mark.parametrize("status", [slow(500), slow(429), slow(502), slow(503)])
async def test_a_busy_service_is_asked_again(service: StandIn, status: int):
    service.fail("create", Fault(status=status), Fault(status=status))
    async with provided(service) as provider:
        sandbox = await provider.open()
        assert (await sandbox.run_cell("1 + 1")).value == 2


async def test_a_service_that_stays_busy_is_infrastructure(service: StandIn):
    """Bounded tries, then an error that leaves the trajectory out; no verdict on its code."""
    service.fail("create", *[Fault(status=500)] * 50)
    async with provided(service, terms=Terms(attempts=2)) as provider:
        with pytest.raises(SandboxError, match="failed 2 times"):
            await provider.open()

    assert service.count("create") == 2


async def test_a_lost_answer_creates_one_machine_only(service: StandIn):
    """The service knows the second request for the first one, by its key."""
    service.fail("create", Fault(drop="after"))
    async with provided(service) as provider:
        await provider.open()

        assert len(service.created) == len(service.running) == 1


async def test_machines_nobody_heard_of_are_found_by_their_tag(service: StandIn):
    """Every answer was lost: the machine runs, and no id is known to end it by."""
    service.fail("create", *[Fault(drop="after")] * 10)
    provider = E2BProvider(terms=Terms(attempts=1), **service.settings)
    with pytest.raises(SandboxError):
        await provider.open()
    ran = len(service.running)
    await provider.aclose()

    assert (ran, len(service.running)) == (1, 0)


async def test_a_machine_that_comes_after_a_cancellation_is_ended(service: StandIn):
    service.fail("create", Fault(slow_s=0.3))
    async with provided(service) as provider:
        opening = asyncio.create_task(provider.open())
        await until(lambda: service.count("create"))
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        await until(lambda: service.created and not service.running)


@pytest.mark.slow
async def test_no_more_machines_than_there_is_room_for(service: StandIn):
    """Those that wait ask nothing, so the service has nothing to refuse."""
    service._most = 2
    async with provided(service, machines=2) as provider:

        async def use(number: int) -> int:
            sandbox = await provider.open()
            result = await sandbox.run_cell(f"{number} + 1")
            await sandbox.close()
            return int(result.value)

        assert await asyncio.gather(*(use(n) for n in range(6))) == [1, 2, 3, 4, 5, 6]

    assert service.most_at_once == 2
    assert service.count("create") == 6


async def test_a_place_is_free_again_whatever_happened(service: StandIn):
    """A failed creation, a cancelled wait and a close all give it back."""
    service.fail("create", Fault(status=400))
    async with provided(service, machines=1) as provider:
        with pytest.raises(Exception, match="400"):
            await provider.open()
        first = await provider.open()
        waiting = asyncio.create_task(provider.open())
        await asyncio.sleep(0.05)
        waiting.cancel()
        await first.close()
        async with asyncio.timeout(20):
            await (await provider.open()).close()


async def test_a_rate_is_kept_over_event_loops():
    """After a burst, one step each; waiting takes no thread and no lock."""
    rate = Rate(20, burst=2)
    started = time.monotonic()
    await asyncio.gather(*(rate.wait() for _ in range(6)))
    took = time.monotonic() - started
    await asyncio.to_thread(lambda: asyncio.run(rate.wait()))

    assert took >= 4 / 20 - 0.01
    assert time.monotonic() - started >= 5 / 20 - 0.01


async def test_a_pause_holds_for_all():
    rate = Rate(1000)
    rate.pause(0.2)
    started = time.monotonic()
    await asyncio.gather(rate.wait(), rate.wait())

    assert time.monotonic() - started >= 0.19


# what they are created with


async def test_machines_are_offline_tagged_and_mortal(service: StandIn):
    async with provided(service, terms=Terms(life_s=120)) as provider:
        await provider.open()

    (asked,) = service.created
    assert asked["allow_internet_access"] is False
    assert asked["timeout"] == 120
    assert asked["metadata"]["agentgym"]
    assert not asked["envVars"]


async def test_the_internet_is_open_only_where_it_was_asked_for(service: StandIn):
    async with provided(service, terms=Terms(allow_internet_access=True)) as provider:
        await provider.open()
        report = provider._gaps

    assert service.created[0]["allow_internet_access"] is True
    assert any("internet" in gap for gap in report)


async def test_a_start_that_is_cut_short_is_taken_up_again(service: StandIn):
    """The connection breaks, and the bridge is interrupted, while the runner comes up."""
    service.fail("execute", Fault(drop="unheard"), Fault(drop="unheard"))
    async with provided(service) as provider:
        sandbox = await provider.open()
        results = [await sandbox.run_cell(str(number)) for number in range(3)]

        assert [(r.value, r.attempts) for r in results] == [(0, 1), (1, 1), (2, 1)]
        assert len(service.created) == 1


# their life


@pytest.mark.slow
async def test_a_machine_in_use_is_kept_alive(service: StandIn):
    """A model that thinks for longer than a life finds its names where it left them."""
    async with provided(service, terms=Terms(life_s=3)) as provider:
        sandbox = await provider.open()
        await sandbox.run_cell("x = 1")
        await asyncio.sleep(3.5)
        result = await sandbox.run_cell("x")

        assert result.value == 1
        assert len(service.created) == 1
        assert service.count("timeout") >= 2


@pytest.mark.slow
async def test_a_machine_is_kept_alive_for_so_long_only(service: StandIn):
    """What somebody forgot to close ends all the same."""
    async with provided(service, terms=Terms(life_s=3, most_life_s=1)) as provider:
        await provider.open()
        await until(lambda: not service.running, 10)


async def test_close_ends_the_machine_and_nobody_keeps_it(service: StandIn):
    async with provided(service) as provider:
        sandbox = await provider.open()
        keeper = sandbox._connection._keeper
        await sandbox.close()
        await asyncio.sleep(0)

        assert not service.running
        assert not provider._service.leases.ids
        assert keeper.done()


async def test_close_never_raises_and_is_repeated(service: StandIn):
    """A service that fails to end a machine is asked again."""
    service.fail("kill", Fault(status=500), Fault(drop="before"))
    async with provided(service) as provider:
        sandbox = await provider.open()
        await sandbox.close()
        await sandbox.close()

        assert not service.running


async def test_a_cancelled_close_still_ends_the_machine(service: StandIn):
    service.fail("kill", Fault(slow_s=0.2))
    async with provided(service) as provider:
        sandbox = await provider.open()
        closing = asyncio.create_task(sandbox.close())
        await until(lambda: service.count("kill"))
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        await until(lambda: not service.running)


async def test_aclose_ends_what_is_open(service: StandIn):
    provider = E2BProvider(per_second=100, **service.settings)
    await asyncio.gather(*(provider.open() for _ in range(3)))
    await provider.aclose()
    await provider.aclose()

    assert len(service.created) == 3
    assert not service.running


LEAVES = """
import asyncio, os, sys
from agentgym.tools.sandbox.e2b import E2BProvider

async def main():
    provider = E2BProvider(api_key=sys.argv[1], api_url=sys.argv[2], sandbox_url=sys.argv[2],
                           per_second=100)
    await asyncio.gather(provider.open(), provider.open())
    print("open", flush=True)
    if sys.argv[3] == "wait":
        await asyncio.sleep(60)

asyncio.run(main())
if sys.argv[3] == "fork" and os.fork() == 0:
    sys.exit(0)
if sys.argv[3] == "fork":
    os.wait()
    print("child gone", flush=True)
    sys.stdin.readline()
if sys.argv[3] == "raise":
    raise SystemExit("an error nobody caught")
"""


def leave(service: StandIn, how: str) -> "subprocess.Popen[str]":
    argv = [sys.executable, "-c", LEAVES, service.settings["api_key"], service.url, how]
    return subprocess.Popen(
        argv,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


@pytest.mark.parametrize("how", [slow("end"), slow("raise"), slow("wait")])
async def test_nothing_is_left_when_the_process_ends(service: StandIn, how: str):
    """By its last line, by an error, or by Ctrl-C."""
    process = leave(service, how)
    assert await asyncio.to_thread(process.stdout.readline) == "open\n"
    if how == "wait":
        process.send_signal(signal.SIGINT)
    await asyncio.to_thread(process.wait, 60)

    assert len(service.created) == 2
    assert not service.running


@pytest.mark.slow
async def test_a_forked_child_leaves_its_parents_machines_alone(service: StandIn):
    process = leave(service, "fork")
    assert await asyncio.to_thread(process.stdout.readline) == "open\n"
    assert await asyncio.to_thread(process.stdout.readline) == "child gone\n"
    ran = len(service.running)
    process.stdin.write("\n")
    process.stdin.close()
    await asyncio.to_thread(process.wait, 60)

    assert ran == 2
    assert not service.running


@pytest.mark.slow
async def test_a_killed_process_leaves_machines_that_end_by_themselves(service: StandIn):
    """Their life is bounded, and nobody prolongs it any more."""
    process = leave(service, "wait")
    assert await asyncio.to_thread(process.stdout.readline) == "open\n"
    os.kill(process.pid, signal.SIGKILL)
    await asyncio.to_thread(process.wait, 60)

    assert [asked["timeout"] for asked in service.created] == [300, 300]
