"""A server that is gone: one line says so, all who need it give up together, and it is no task's
fault.
"""

import asyncio
import logging
import time
from dataclasses import replace

import pytest
from aiohttp import web
from vllm_protocol_kit import (
    SHORT,
    FakeVllm,
    TestWeights,
    ask,
    cut,
    engine_over,
    fake,
    hasty,
    running,
    silence,
    two_servers,
)

from agentgym.engines.base import Generation
from agentgym.engines.vllm.server import VllmServerEngine
from agentgym.engines.weights import WeightsLostError
from agentgym.errors import EngineError, OutageError

GENERATE = "/inference/v1/generate"
BRIEF = replace(SHORT, gone_s=0.4, update_s=30)
"""For a server that does not come back."""
DEAD = dict.fromkeys((GENERATE, "/health", "/weight_info"), cut)
__all__ = ["fake", "hasty"]


async def many(engine: VllmServerEngine, num: int = 50) -> list[Generation | BaseException]:
    """What so many turns at once end with."""
    turns = [ask(engine, session=str(number)) for number in range(num)]
    return await asyncio.gather(*turns, return_exceptions=True)


async def test_all_turns_share_one_outage(fake: FakeVllm, caplog: pytest.LogCaptureFixture) -> None:
    """One line for all of them, one that asks for all of them, and one deadline."""
    async with engine_over(fake, deadlines=BRIEF) as engine:
        await engine.connect()
        fake.always |= DEAD
        started = time.monotonic()
        ends = await many(engine)
        waited = time.monotonic() - started

    (line,) = [record.getMessage() for record in caplog.records]
    assert {type(end) for end in ends} == {OutageError}
    assert f"{fake.url} was not there within 0.4 s" in str(ends[0])
    assert waited < 6, "one after the other they would wait for 20 s"
    assert fake.num("/health") < 40
    assert line.startswith(f"{fake.url} does not answer (")
    assert line.endswith("agentgym serve`")
    assert "waiting up to 0.4 s for it" in line


async def test_a_server_that_is_back_is_told_of(
    fake: FakeVllm, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentgym.engines.vllm.presence._QUIET_S", 0.3)
    async with engine_over(fake, deadlines=replace(SHORT, gone_s=10)) as engine:
        first = await ask(engine)
        fake.always |= DEAD
        turns = asyncio.create_task(many(engine, 8))
        await asyncio.sleep(0.8)
        fake.always.clear()
        answers = await turns

    lines = [record.getMessage() for record in caplog.records]
    assert answers == [first] * 8
    assert [line.split(" (")[0] for line in lines] == [
        f"{fake.url} does not answer",
        f"{fake.url} answers again",
    ]
    assert {record.levelno for record in caplog.records} == {logging.WARNING}


async def test_a_connection_that_was_cut_is_no_news(
    fake: FakeVllm, caplog: pytest.LogCaptureFixture
) -> None:
    fake.faults[GENERATE] += [cut] * 3
    async with engine_over(fake) as engine:
        await ask(engine)

    assert not caplog.records


async def test_a_server_that_says_nothing_is_told_of_before_it_is_given_up(
    fake: FakeVllm, caplog: pytest.LogCaptureFixture
) -> None:
    """Found by asking it beside the turn, which may rightly take long."""
    async with engine_over(fake) as engine:
        await engine.connect()
        fake.always |= dict.fromkeys((GENERATE, "/weight_info", "/health"), silence)
        turn = asyncio.create_task(ask(engine))
        await asyncio.sleep(SHORT.hung_s / 4 + SHORT.hung_s / 2 + 0.15)
        told = [record.getMessage() for record in caplog.records]
        is_over = turn.done()
        with pytest.raises(OutageError):
            await turn

    assert "does not answer (no answer within 0.2 s)" in told[0]
    assert not is_over
    assert len(caplog.records) == 1


async def test_several_servers_that_are_gone_are_not_asked_in_turn_without_a_rest() -> None:
    async with two_servers(BRIEF) as (one, two, engine):
        await engine.connect()
        for server in (one, two):
            server.always |= DEAD
        ends = await many(engine, 4)

    assert {type(end) for end in ends} == {OutageError}
    assert len(one.turns) + len(two.turns) <= 3 * 4


async def test_the_first_server_that_is_back_is_enough() -> None:
    async with two_servers() as (one, two, engine):
        first = await ask(engine)
        for server in (one, two):
            server.always |= DEAD
        turn = asyncio.create_task(ask(engine))
        await asyncio.sleep(0.4)
        two.always.clear()
        answer = await turn

    assert answer == first


async def test_a_server_that_answers_a_turn_is_no_longer_waited_for(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or the next update, long after, would find that its time is up and give it no second."""
    monkeypatch.setattr("agentgym.engines.vllm.turns._REST_S", 0.2)
    async with two_servers() as (one, two, engine):
        await engine.connect()
        one.always |= {GENERATE: silence, "/weight_info": silence}
        await ask(engine)
        one.always.clear()
        await asyncio.sleep(0.25)
        await ask(engine, session="another")

    gone, back = [record.getMessage() for record in caplog.records]
    assert gone.startswith(f"{one.url} does not answer (")
    assert back == f"{one.url} answers again"
    assert two.turns


async def test_a_server_that_is_back_late_and_slow_gets_its_weights(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was missed, another one took over, and nobody has asked it since."""
    monkeypatch.setattr("agentgym.engines.vllm.turns._REST_S", 60.0)

    async def slow(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(0.5)
        return web.json_response({"weight_version": "default"})

    async with two_servers() as (one, two, engine):
        await engine.connect()
        one.always |= {GENERATE: silence, "/weight_info": silence}
        await ask(engine)
        await asyncio.sleep(SHORT.gone_s)
        one.always.clear()
        one.always["/weight_info"] = slow
        await engine.update_weights(TestWeights(1))

    assert (one.label, two.label) == ("1", "1")


async def test_turns_that_find_a_restart_at_the_same_time_say_the_same() -> None:
    """One of them may have met it while it was gone, and rested meanwhile."""
    server = FakeVllm()
    async with running(server), engine_over(server) as engine:
        await engine.update_weights(TestWeights(1))
        server.faults[GENERATE] += [cut] * 20
        server.label = "default"
        ends = await many(engine, 20)

    assert {type(end) for end in ends} == {WeightsLostError}


async def test_weights_of_somebody_else_are_no_restart() -> None:
    """Sending them again would go on for ever between two runs."""
    server = FakeVllm()
    async with running(server), engine_over(server) as engine:
        await engine.update_weights(TestWeights(1))
        server.label = "9"
        with pytest.raises(OutageError, match="somebody else") as caught:
            await ask(engine)
        server.label = "default"
        with pytest.raises(WeightsLostError):
            await ask(engine)
        server.faults[GENERATE] += [cut]
        with pytest.raises(WeightsLostError, match="has the weights 'default' instead of '1'"):
            await ask(engine)

    assert not isinstance(caught.value, WeightsLostError)


async def test_an_update_says_what_it_waits_for(
    fake: FakeVllm, caplog: pytest.LogCaptureFixture
) -> None:
    async with engine_over(fake, deadlines=BRIEF) as engine:
        await engine.connect()
        fake.always |= DEAD
        with pytest.raises(EngineError, match=r"not updated: .* was not there within 0.4 s"):
            await engine.update_weights(TestWeights(1))

    assert "does not answer" in caplog.text


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("path", ["/start_weight_update", "/update_weights"])
async def test_an_update_does_not_wait_for_a_server_that_went_silent_in_it(
    fake: FakeVllm, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    """An update may rightly take many minutes, but not while the server does not even say so."""
    async with engine_over(fake, deadlines=BRIEF) as engine:
        first = await ask(engine)
        fake.always |= {path: silence, "/health": silence}
        started = time.monotonic()
        with pytest.raises(EngineError, match=r"not updated: .* was not there within 0.4 s"):
            await engine.update_weights(TestWeights(1))
        waited = time.monotonic() - started
        fake.always.clear()
        again = await ask(engine)

    assert waited < 10
    assert again == first
    assert "does not answer" in caplog.text


async def test_an_update_that_takes_long_is_no_outage(
    fake: FakeVllm, caplog: pytest.LogCaptureFixture
) -> None:
    """The server says that it is well."""
    async with engine_over(fake, deadlines=replace(SHORT, gone_s=0.8)) as engine:
        await engine.update_weights(TestWeights(1, before_second=lambda: time.sleep(1.5)))

    assert not caplog.records


@pytest.mark.usefixtures("hasty")
async def test_a_server_that_goes_silent_in_the_swap_is_given_up(fake: FakeVllm) -> None:
    async def hang(request: web.Request) -> web.StreamResponse:
        fake.always["/health"] = silence
        return await silence(request)

    fake.faults["/finish_weight_update"].append(hang)
    async with engine_over(fake, deadlines=BRIEF) as engine:
        started = time.monotonic()
        with pytest.raises(EngineError, match=r"was not there within 0.4 s.*not known at"):
            await engine.update_weights(TestWeights(1))

    assert time.monotonic() - started < 10


async def test_a_swap_that_takes_long_is_waited_for(fake: FakeVllm) -> None:
    """The server says that it is well."""

    async def late(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(1.5)
        return web.json_response({})

    fake.after_swap = late
    async with engine_over(fake, deadlines=replace(SHORT, gone_s=0.8)) as engine:
        assert await engine.update_weights(TestWeights(1)) == 1
