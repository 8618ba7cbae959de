"""How waiting ends: with the engine, with whoever waits, or with what all others hear."""

import asyncio
import time
from dataclasses import replace

import pytest
from aiohttp import web
from vllm_protocol_kit import (
    SHORT,
    FakeVllm,
    Fault,
    TestWeights,
    ask,
    cut,
    engine_over,
    fake,
    hasty,
    silence,
    status,
)

from agentgym.engines.vllm.endable import Endable
from agentgym.engines.weights import WeightsLostError
from agentgym.errors import EngineError

GENERATE = "/inference/v1/generate"
__all__ = ["fake", "hasty"]

GONE = dict.fromkeys((GENERATE, "/health", "/weight_info"), cut)
BUSY: dict[str, Fault] = {GENERATE: status(503, "busy", **{"Retry-After": "1"})}


@pytest.mark.parametrize("faults", [BUSY, GONE])
async def test_a_closed_engine_asks_nobody_again(fake: FakeVllm, faults: dict[str, Fault]) -> None:
    """Turns that rest between two attempts, or wait for a server, end at once, too."""
    async with engine_over(fake, deadlines=replace(SHORT, gone_s=30)) as engine:
        await engine.connect()
        fake.always |= faults
        turn = asyncio.create_task(ask(engine))
        await asyncio.sleep(0.5)
        started, num = time.monotonic(), len(fake.seen)
        await engine.aclose()
        with pytest.raises(EngineError, match="the engine was closed"):
            await turn
        waited = time.monotonic() - started
        await asyncio.sleep(1.1 if faults is BUSY else 0.4)

    assert waited < 0.5
    assert len(fake.seen) == num


@pytest.mark.parametrize("path", ["/v1/models", "/pause", "/update_weights"])
async def test_an_update_ends_with_its_engine(fake: FakeVllm, path: str) -> None:
    """At whatever step; the server goes on with what it had."""
    reached = asyncio.Event()

    async def deaf(request: web.Request) -> web.StreamResponse:
        reached.set()
        return await silence(request)

    async with engine_over(fake) as engine:
        fake.always[path] = deaf
        update = asyncio.create_task(engine.update_weights(TestWeights(1)))
        await asyncio.wait_for(reached.wait(), 5)
        await engine.aclose()
        num = len(fake.seen)
        with pytest.raises(EngineError, match="the engine was closed"):
            await update
        await asyncio.sleep(0.1)

    assert len(fake.seen) == num
    assert (fake.label, fake.is_paused) == ("default", False)


async def test_an_engine_that_is_closed_while_it_looks_samples_nothing(fake: FakeVllm) -> None:
    async def late(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(0.2)
        return web.Response()

    fake.always["/health"] = late
    async with engine_over(fake) as engine:
        turn = asyncio.create_task(ask(engine))
        await asyncio.sleep(0.1)
    with pytest.raises(EngineError, match="the engine was closed"):
        await turn

    assert not fake.turns


async def test_a_cancellation_is_not_taken_for_the_end_of_the_work() -> None:
    """Else a run that is interrupted while its engine is closed would go on."""
    work = Endable(asyncio.sleep(60))
    waiting = asyncio.create_task(work.result())
    await asyncio.sleep(0)
    work.end(EngineError("the engine was closed"))
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_all_who_wait_for_the_first_look_share_its_end(fake: FakeVllm) -> None:
    """One after the other they would wait for five times as long."""
    fake.always["/health"] = status(500, "starting")
    async with engine_over(fake, deadlines=replace(SHORT, connect_s=0.4)) as engine:
        started = time.monotonic()
        ends = await asyncio.gather(
            *(ask(engine, session=str(number)) for number in range(5)), return_exceptions=True
        )
        waited = time.monotonic() - started
        fake.always.clear()
        assert (await ask(engine)).policy_version == 0

    assert {type(end).__name__ for end in ends} == {"UnreachableError"}
    assert waited < 1.2


async def test_weights_that_another_process_brought_make_a_server_whole(fake: FakeVllm) -> None:
    """It had others for a while; a server that is merely busy afterwards is waited for."""
    fake.label = "1"
    async with engine_over(fake) as engine:
        await ask(engine)
        fake.label = "default"
        with pytest.raises(WeightsLostError):
            await ask(engine)
        fake.label = "2"
        fake.faults["/weight_info"].append(cut)
        await engine.follow(2)
        fake.faults[GENERATE].append(status(503, "busy"))
        turn = await ask(engine)

    assert turn.policy_version == 2
