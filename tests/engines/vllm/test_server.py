"""Turns at one server and at several: what is asked for, where, and what happens if it fails."""

import asyncio
import time
from collections import Counter
from dataclasses import replace

import pytest
from aiohttp import web
from vllm_protocol_kit import (
    SHORT,
    FakeVllm,
    Fault,
    ask,
    body_of,
    cut,
    engine_over,
    fake,
    hasty,
    reply_of,
    running,
    silence,
    status,
    two_servers,
)

from agentgym.engines.base import Sampling
from agentgym.engines.weights import WeightsLostError
from agentgym.errors import ConfigError, EngineError, OutageError

GENERATE = "/inference/v1/generate"
BRIEF = replace(SHORT, gone_s=0.4)
"""For a server that does not come back."""
__all__ = ["fake", "hasty"]


async def settle(server: FakeVllm) -> None:
    """Wait until nothing runs there."""
    ends = time.monotonic() + 2
    while server.running:
        assert time.monotonic() < ends, f"{server.running} turns still run"
        await asyncio.sleep(0.01)


async def test_a_turn_is_what_the_server_sampled(fake: FakeVllm) -> None:
    async with engine_over(fake) as engine:
        answer = await ask(engine, max_tokens=100)

    assert (len(answer.token_ids), answer.finish_reason) == (61, "length")
    assert engine.max_context == 64
    assert answer.logprobs == (-0.5,) * 61
    assert (answer.policy_version, answer.token_versions) == (0, ())
    assert fake.turns[0]["sampling_params"]["max_tokens"] == 61


async def test_the_context_is_known_before_the_first_turn(fake: FakeVllm) -> None:
    """The loop asks for it from inside an event loop, where it cannot await."""
    async with engine_over(fake) as engine:
        assert await asyncio.to_thread(lambda: engine.max_context) == 64
        assert fake.num("/v1/models") == 1
        await ask(engine)

    assert fake.num("/v1/models") == 1


@pytest.mark.parametrize(
    ("prompt", "message"), [((), "the prompt is empty"), ((1,) * 64, "64 tokens leaves no room")]
)
async def test_a_prompt_without_room_is_refused(
    fake: FakeVllm, prompt: tuple[int, ...], message: str
) -> None:
    async with engine_over(fake) as engine:
        with pytest.raises(EngineError, match=message):
            await engine.generate(prompt, Sampling(max_tokens=1, seed=1), session="s")

    assert not fake.turns


@pytest.mark.parametrize(
    ("changes", "stop", "expected"),
    [
        ({"finish_reason": "stop", "stop_reason": 9}, (), "stop"),
        ({"finish_reason": "stop", "stop_reason": None}, (), "stop"),
        ({"finish_reason": "stop", "stop_reason": "x"}, ("x",), "stop_string"),
        ({"finish_reason": "length"}, ("x",), "length"),
    ],
)
async def test_why_a_turn_ended(
    fake: FakeVllm, changes: dict[str, object], stop: tuple[str, ...], expected: str
) -> None:
    fake.faults[GENERATE].append(_answering(reply_of([8, 7], ["default"] * 2, **changes)))
    async with engine_over(fake) as engine:
        answer = await ask(engine, stop=stop, stop_token_ids=frozenset({9}))

    assert (answer.token_ids, answer.finish_reason) == ((8, 7), expected)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"finish_reason": "abort"}, "ended a turn of 2 tokens with 'abort'"),
        ({"token_ids": [1]}, "stamped 2 of 1 tokens"),
        ({"logprobs": None}, "not that of vLLM 0.32"),
        ({"weight_versions": None}, "not that of vLLM 0.32"),
        ({"logprobs": {"content": [{"logprob": -9999.0}] * 2}}, "is no number"),
        ({"token_ids": [8.0, 7.0]}, "not that of vLLM 0.32"),
    ],
)
async def test_an_answer_that_is_no_turn_fails_it(
    fake: FakeVllm, changes: dict[str, object], message: str
) -> None:
    """Nothing is made up: neither a logprob nor a version."""
    fake.faults[GENERATE].append(_answering(reply_of([8, 7], ["default"] * 2, **changes)))
    async with engine_over(fake) as engine:
        with pytest.raises(EngineError, match=message):
            await ask(engine)


async def test_no_more_tokens_are_taken_than_were_asked_for(fake: FakeVllm) -> None:
    fake.faults[GENERATE].append(_answering(reply_of([8] * 5, ["default"] * 5)))
    async with engine_over(fake) as engine:
        with pytest.raises(EngineError, match="gave 5 tokens, asked for 4"):
            await ask(engine)


async def test_a_busy_server_is_asked_again_when_it_says(fake: FakeVllm) -> None:
    fake.faults[GENERATE] += [status(429, **{"Retry-After": "0.3"}), status(503, "full"), cut, cut]
    async with engine_over(fake) as engine:
        started = time.monotonic()
        answer = await ask(engine)
        calm = await ask(engine)

    assert time.monotonic() - started > 0.3
    assert (answer, len(fake.turns)) == (calm, 6)


@pytest.mark.parametrize("fault", [status(500, "boom"), cut])
async def test_a_server_that_gives_no_turn_is_an_outage(fake: FakeVllm, fault: Fault) -> None:
    """Whatever it says of its health: what it still gave would be a biased part of a window."""
    fake.always[GENERATE] = fault
    async with engine_over(fake, deadlines=BRIEF) as engine:
        started = time.monotonic()
        with pytest.raises(OutageError, match=f"{fake.url}: .*; gave up"):
            await ask(engine)

    assert time.monotonic() - started < BRIEF.gone_s + 4


async def test_a_server_that_is_full_for_ever_is_an_outage(fake: FakeVllm) -> None:
    fake.always[GENERATE] = status(503, "full")
    async with engine_over(fake, deadlines=replace(SHORT, turn_s=1.0)) as engine:
        with pytest.raises(OutageError, match=r"full.*; gave up"):
            await ask(engine)


async def test_a_turn_that_alone_is_not_given_fails_alone(fake: FakeVllm) -> None:
    async def spoil(request: web.Request) -> web.StreamResponse:
        body = await body_of(request)
        if body["sampling_params"]["seed"] == 13:
            return await status(500, "boom")(request)
        return web.json_response(reply_of([1], ["default"]))

    fake.always[GENERATE] = spoil
    async with engine_over(fake) as engine:
        turn = asyncio.create_task(ask(engine, session="13", seed=13))
        await asyncio.sleep(SHORT.gone_s / 2)
        await ask(engine)
        with pytest.raises(EngineError, match=r"boom.*; gave up"):
            await turn


async def test_what_the_caller_must_change_is_not_asked_again(fake: FakeVllm) -> None:
    fake.always[GENERATE] = status(403, "scale-out is off")
    async with engine_over(fake) as engine:
        with pytest.raises(ConfigError, match="scale-out is off"):
            await ask(engine)

    assert len(fake.turns) == 1


async def test_a_request_that_the_server_refuses_fails_its_turn_alone(fake: FakeVllm) -> None:
    fake.faults[GENERATE].append(status(400, "look-around is not supported"))
    async with engine_over(fake) as engine:
        with pytest.raises(EngineError, match="look-around"):
            await ask(engine)
        await ask(engine)


async def test_a_cancelled_turn_ends_at_the_server(fake: FakeVllm) -> None:
    fake.token_s = 0.05
    async with engine_over(fake) as engine:
        turns = [asyncio.create_task(ask(engine, session=str(i), max_tokens=60)) for i in range(8)]
        await asyncio.sleep(0.3)
        assert fake.running == 8
        for turn in turns[1:]:
            turn.cancel()
        await asyncio.sleep(0.3)
        assert fake.running == 1
        engine.release("0")
        with pytest.raises(EngineError, match="0 is over"):
            await turns[0]
        await settle(fake)


async def test_closing_ends_what_runs_and_leaves_no_task(fake: FakeVllm) -> None:
    fake.token_s = 0.05
    before = asyncio.all_tasks()
    async with engine_over(fake) as engine:
        turns = [asyncio.create_task(ask(engine, session=str(i), max_tokens=60)) for i in range(3)]
        await asyncio.sleep(0.2)
        await engine.aclose()
        outcomes = await asyncio.gather(*turns, return_exceptions=True)
        with pytest.raises(EngineError, match="closed"):
            await ask(engine)
    await settle(fake)
    await asyncio.sleep(0.01)

    assert [str(outcome) for outcome in outcomes] == ["the engine was closed"] * 3
    assert {task for task in asyncio.all_tasks() - before if "aiohttp" not in repr(task)} == set()


async def test_no_more_requests_are_in_flight_than_allowed(fake: FakeVllm) -> None:
    fake.token_s = 0.01
    async with engine_over(fake, concurrency=5) as engine:
        await asyncio.gather(*[ask(engine, session=str(i)) for i in range(20)])

    assert fake.most_running == 5


async def test_a_server_that_hangs_is_not_waited_for(fake: FakeVllm) -> None:
    """Its connection is open and silent, as that of a stopped process."""
    async with running(FakeVllm()) as other, engine_over(other, fake) as engine:
        await engine.connect()
        fake.always |= {GENERATE: silence, "/weight_info": silence, "/health": silence}
        started = time.monotonic()
        answers = await asyncio.gather(*[ask(engine, session=str(i)) for i in range(4)])

    assert time.monotonic() - started < 3
    assert len(fake.turns) == 2
    assert len(other.turns) == 4
    assert len({answer.token_ids for answer in answers}) == 1


@pytest.mark.usefixtures("hasty")
async def test_the_only_server_hangs(fake: FakeVllm) -> None:
    async with engine_over(fake, deadlines=BRIEF) as engine:
        await engine.connect()
        fake.always |= {GENERATE: silence, "/weight_info": silence, "/health": silence}
        started = time.monotonic()
        with pytest.raises(OutageError, match="was not there within"):
            await ask(engine)

    assert time.monotonic() - started < BRIEF.hung_s * 2 + BRIEF.gone_s + 3


async def test_a_slow_turn_at_a_server_that_answers_is_waited_for(fake: FakeVllm) -> None:
    fake.token_s = 0.3
    async with engine_over(fake) as engine:
        answer = await ask(engine, max_tokens=4)

    assert len(answer.token_ids) == 4
    assert fake.num("/weight_info") > 3


async def test_sessions_stick_to_their_server_and_share_the_load() -> None:
    """Turns of one trajectory have a prefix in common; a new one goes where there are fewest."""
    async with two_servers() as (one, two, engine):
        for turn in range(3):
            for session in range(6):
                await ask(engine, session=str(session), seed=100 * session + turn)
        loads = engine.loads
        for session in (0, 2, 4):
            engine.release(str(session))
        await ask(engine, session="new", seed=7000)

    seeds = [
        Counter(turn["sampling_params"]["seed"] // 100 for turn in fake.turns)
        for fake in (one, two)
    ]
    assert loads == [3, 3]
    assert seeds == [{0: 3, 2: 3, 4: 3, 70: 1}, {1: 3, 3: 3, 5: 3}]


async def test_a_server_that_dies_hands_its_trajectories_over() -> None:
    async with two_servers(token_s=0.02) as (_, two, engine):
        calm = await ask(engine, session="calm", max_tokens=10)
        engine.release("calm")
        turns = [asyncio.create_task(ask(engine, session=str(i), max_tokens=10)) for i in range(4)]
        await asyncio.sleep(0.1)
        loads = engine.loads
        two.always |= {GENERATE: cut, "/health": cut}
        two.cut_running()
        answers = await asyncio.gather(*turns)

        assert (loads, engine.loads) == ([2, 2], [4, 0])
    assert answers == [calm] * 4


async def test_a_server_that_is_gone_for_a_while_is_waited_for() -> None:
    async with running(FakeVllm()) as first, engine_over(first) as engine:
        before = await ask(engine)
        first.always |= {GENERATE: cut, "/health": cut}
        turn = asyncio.create_task(ask(engine))
        await asyncio.sleep(0.3)
        first.always.clear()
        after = await turn

    assert after == before


async def test_a_restarted_server_is_not_sampled_from() -> None:
    """It would answer with the weights it was started with, as if nothing had happened."""
    server = FakeVllm(label="7")
    async with running(server), engine_over(server) as engine:
        first = await ask(engine)
        server.label = "default"
        with pytest.raises(WeightsLostError, match=r"weights 'default' instead of '7'.*restarted"):
            await ask(engine)

    assert first.policy_version == 7


async def test_another_server_takes_over_from_one_that_was_restarted() -> None:
    async with two_servers(label="7") as (one, two, engine):
        first = await ask(engine)
        one.label = "default"
        again = [await ask(engine, session=str(i)) for i in range(4)]

    assert again == [first] * 4
    assert len(two.turns) == 4


def _answering(answer: object) -> Fault:
    async def fault(request: web.Request) -> web.StreamResponse:
        return web.json_response(answer)

    return fault
