"""An engine over somebody else's server: what it asks, how it waits and what it makes of it."""

import asyncio
import time
from typing import Any

import pytest
from aiohttp import web
from openai_kit import END, Server, ask, chatted, engine_for, refusing, said, server

from agentgym.engines.base import Generation, Sampling, refuse_text_only
from agentgym.engines.http import Patience, longest_call_s
from agentgym.engines.openai import Usage
from agentgym.errors import ConfigError, EngineError

__all__ = ["server"]


async def test_the_prompt_is_completed_and_the_answer_is_a_turn(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    answer = await ask(engine_for(server), temperature=0.5, top_p=0.9, top_k=4, stop=("x",))

    assert answer.token_ids == (ord("h"), ord("i"), END)
    assert answer.logprobs == (0.0, 0.0, 0.0)
    assert (answer.finish_reason, answer.policy_version) == ("stop", 0)
    assert server.paths == ["/v1/completions"]
    assert server.keys == ["Bearer secret"]
    assert server.bodies == [
        {
            "model": "m",
            "prompt": "2+2",
            "max_tokens": 20,
            "temperature": 0.5,
            "top_p": 0.9,
            "top_k": 4,
            "seed": 7,
            "stop": ["x"],
        }
    ]


async def test_the_room_left_is_what_is_asked_for(server: Server) -> None:
    await ask(engine_for(server), prompt="x" * 95)

    assert server.bodies[0]["max_tokens"] == 5
    with pytest.raises(EngineError, match="100 tokens leaves no room in a context of 100"):
        await ask(engine_for(server), prompt="x" * 100)


@pytest.mark.parametrize(
    ("reply", "kept", "reason"),
    [
        (said("abc", "length"), "abc", "length"),
        (said("abcdefgh", "stop"), "abcde", "length"),
        (said("ab", None), "ab\0", "stop"),
        (said("", "stop"), "\0", "stop"),
        (said("ab", "stop", stop_reason="OB:"), "abOB:", "stop_string"),
        (said("abOB:", "stop", stop_reason="OB:"), "abOB:", "stop_string"),
        (said("ab", "stop", stop_reason=None), "ab\0", "stop"),
    ],
)
async def test_how_an_answer_ends(
    server: Server, reply: web.Response, kept: str, reason: str
) -> None:
    """A stop string is part of the turn, as with every engine; nothing exceeds the budget."""
    server.answer = lambda number: reply
    answer = await ask(engine_for(server), max_tokens=5, stop=("OB:",))

    assert "".join(map(chr, answer.token_ids)) == kept
    assert answer.finish_reason == reason


async def test_special_tokens_that_are_words_are_asked_for_where_there_are_some(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """A server leaves them out by default, and so would lose every tool call; OpenAI's own takes
    no such setting."""
    special = {"has_special_words": True, "has_special_start": True}
    await ask(engine_for(server, wording=special))
    chat = engine_for(server, wording=special, conversation=lambda session: [])
    server.answer = lambda number: chatted({"content": "hi"})
    await ask(chat)
    text = "Unrecognized request argument supplied: skip_special_tokens"
    server.answer = refusing("skip_special_tokens", text, server)
    await ask(engine_for(server, wording=special))

    names = ("skip_special_tokens", "add_special_tokens")
    asked = [{name: body[name] for name in names if name in body} for body in server.bodies]
    both = dict.fromkeys(names, False)
    assert asked == [both, {names[0]: False}, both, {names[1]: False}]
    (record,) = caplog.records
    assert "may leave special tokens out of its answers" in record.getMessage()


async def test_a_conversation_is_handed_over_as_it_is(server: Server) -> None:
    """The server renders it; what it has cut out as reasoning is put back."""
    messages = [{"role": "user", "content": "2+2?"}]
    server.answer = lambda number: chatted({"content": "4", "reasoning_content": "hm"})
    answer = await ask(engine_for(server, conversation=lambda session: messages), max_tokens=90)

    assert server.paths == ["/v1/chat/completions"]
    assert server.bodies[0]["messages"] == messages
    assert "".join(map(chr, answer.token_ids)) == "<think>\nhm\n</think>\n\n4\0"


async def test_a_busy_server_is_asked_again_when_it_says(server: Server) -> None:
    """Where that is in the past, as by a clock that is behind, it is still not asked at once."""
    busy = [{"Retry-After": "0.15"}, {"Retry-After": "Thu, 01 Jan 1970 00:00:00 GMT"}]

    def answer(number: int) -> web.Response:
        return web.Response(status=429, headers=busy[number]) if number < 2 else said("hi")

    server.answer = answer
    assert (await ask(engine_for(server))).finish_reason == "stop"
    waits = [later - sooner for sooner, later in zip(server.times, server.times[1:], strict=False)]
    assert waits[0] >= 0.15
    assert waits[1] >= 0.1


async def test_a_broken_server_is_asked_again_with_growing_pauses(server: Server) -> None:
    server.answer = lambda number: web.Response(status=500 + number, text="down <for now>")

    with pytest.raises(EngineError, match=r"status 502: down <for now>; gave up after 3 attempts"):
        await ask(engine_for(server, max_retries=2))
    first, second = server.times[1] - server.times[0], server.times[2] - server.times[1]
    assert 0.1 <= first < second


async def test_a_dead_server_is_an_error_within_the_deadlines(server: Server) -> None:
    """Else it would park the trajectory for ever."""

    async def never(number: int) -> web.Response:
        await asyncio.sleep(30)
        return said("late")

    server.answer = never
    started = time.monotonic()

    with pytest.raises(EngineError, match=r"no answer within 0.1 s; gave up after 2 attempts"):
        await ask(engine_for(server, timeout_s=0.1, max_retries=1))
    assert time.monotonic() - started < 2
    gone = Server(url="http://127.0.0.1:9/v1")
    with pytest.raises(EngineError, match="ClientConnectorError"):
        await ask(engine_for(gone, max_retries=0))


@pytest.mark.parametrize("status", [401, 403, 404])
async def test_a_server_that_does_not_know_us_stops_the_run(server: Server, status: int) -> None:
    """Asking again, or a thousand trajectories that fail one by one, would help nobody."""
    server.answer = lambda number: web.json_response({"error": "no such model"}, status=status)

    with pytest.raises(ConfigError, match=f"status {status}: .*no such model.*; check URL, key"):
        await ask(engine_for(server))
    assert len(server.bodies) == 1


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (web.Response(status=400, text="too long"), "status 400: too long"),
        (web.Response(text="<html>"), "no JSON: <html>"),
        (web.json_response({"choices": []}), "holds no answer"),
        (web.json_response([1]), "holds no answer"),
        (said("x", "content_filter"), "ended an answer with 'content_filter'"),
        (web.json_response({"choices": [{"text": 3}]}), "ended an answer with None: 3"),
        (said("", "length"), "empty answer"),
    ],
)
async def test_what_is_no_answer_fails_the_turn_at_once(
    server: Server, reply: web.Response, message: str
) -> None:
    server.answer = lambda number: reply

    with pytest.raises(EngineError, match=message):
        await ask(engine_for(server))
    assert len(server.bodies) == 1


async def test_no_more_requests_at_once_than_allowed(server: Server) -> None:
    running, peak = 0, 0

    async def answer(number: int) -> web.Response:
        nonlocal running, peak
        running += 1
        peak = max(peak, running)
        await asyncio.sleep(0.01)
        running -= 1
        return said("hi")

    server.answer = answer
    engine = engine_for(server, concurrency=3)
    settings = Sampling(max_tokens=5, seed=1)
    await asyncio.gather(*[engine.generate((1,), settings, session=str(i)) for i in range(12)])
    await engine.aclose()

    assert (len(server.bodies), peak) == (12, 3)


async def test_one_engine_serves_one_loop_after_another(server: Server) -> None:
    """Sessions and semaphores are bound to a loop; a notebook starts many."""
    engine = engine_for(server, concurrency=1)

    async def both() -> list[Generation]:
        settings = Sampling(max_tokens=5, seed=1)
        turns = [engine.generate((1,), settings, session=str(i)) for i in range(2)]
        return list(await asyncio.gather(*turns))

    for _ in range(2):
        assert len(await asyncio.to_thread(lambda: asyncio.run(both()))) == 2
    await engine.aclose()


async def test_a_closed_engine_answers_nothing(server: Server) -> None:
    engine = engine_for(server)
    await engine.aclose()
    await engine.aclose()

    with pytest.raises(EngineError, match="closed"):
        await ask(engine)


@pytest.mark.parametrize(
    ("status", "key", "message"),
    [
        (401, None, "variable OPENAI_API_KEY is needed, and not set"),
        (403, "secret", "variable OPENAI_API_KEY was refused"),
        (404, "secret", "there is no model 'm', or no such path"),
    ],
)
async def test_who_must_change_what_is_said(
    server: Server, status: int, key: str | None, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    if key:
        monkeypatch.setenv("OPENAI_API_KEY", key)
    server.answer = lambda number: web.json_response({"error": {"message": "no"}}, status=status)

    with pytest.raises(ConfigError, match=message):
        await ask(engine_for(server))


async def test_an_endpoint_without_seeds_is_told_none(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """It is said once, though several hear it, and remembered."""
    server.answer = refusing("seed", "Unrecognized request argument supplied: seed", server)
    engine = engine_for(server)
    settings = Sampling(max_tokens=5, seed=1)
    await asyncio.gather(*[engine.generate((1,), settings, session="s") for _ in range(3)])
    await engine.generate((1,), settings, session="s")
    await engine.aclose()

    assert ["seed" in body for body in server.bodies] == [True] * 3 + [False] * 4
    assert [record.getMessage() for record in caplog.records] == [
        f"{server.url} takes no seed: no run can be repeated"
    ]


async def test_an_endpoint_may_have_its_own_name_for_the_limit(server: Server) -> None:
    text = "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."
    server.answer = refusing("max_tokens", text, server, param="max_tokens")
    await ask(engine_for(server))

    assert server.bodies[1]["max_completion_tokens"] == 20


async def test_only_what_makes_no_difference_is_left_out(server: Server) -> None:
    """Another temperature is another policy."""
    server.answer = refusing("temperature", "temperature is not supported", server)

    assert (await ask(engine_for(server), temperature=1.0)).finish_reason == "stop"
    with pytest.raises(ConfigError, match=r"does not take temperature=0.5: .*is not supported"):
        await ask(engine_for(server), temperature=0.5)
    server.answer = refusing("top_k", "extra fields not permitted: top_k", server)
    with pytest.raises(ConfigError, match="does not take top_k=4"):
        await ask(engine_for(server), top_k=4)


async def test_a_complaint_about_the_prompt_is_no_refused_setting(server: Server) -> None:
    """It says `max_tokens` too, and dropping that would only ask for more."""
    text = "maximum context length is 10 tokens; reduce max_tokens or the prompt"
    server.answer = lambda number: web.json_response({"error": {"message": text}}, status=400)

    with pytest.raises(EngineError, match="maximum context length"):
        await ask(engine_for(server))
    assert len(server.bodies) == 1


async def test_requests_begin_no_faster_than_allowed(server: Server) -> None:
    """Evenly spread; what is asked again counts."""
    server.answer = lambda number: web.Response(status=500) if number == 0 else said("hi")
    engine = engine_for(server, requests_per_minute=1200)
    settings = Sampling(max_tokens=5, seed=1)
    started = time.monotonic()
    await asyncio.gather(*[engine.generate((1,), settings, session=str(i)) for i in range(4)])
    took_s = time.monotonic() - started
    await engine.aclose()

    assert len(server.times) >= 5
    assert took_s >= 0.05 * (len(server.times) - 1)


async def test_what_the_endpoint_counts_is_added_up(server: Server) -> None:
    usage = {"prompt_tokens": 7, "completion_tokens": 2}
    server.answer = lambda number: web.json_response(
        {"choices": [{"text": "hi", "finish_reason": "stop"}], "usage": usage}
    )
    engine = engine_for(server)
    settings = Sampling(max_tokens=5, seed=1)
    await asyncio.gather(*[engine.generate((1,), settings, session=str(i)) for i in range(3)])
    await engine.aclose()

    assert engine.usage == Usage(requests=3, prompt_tokens=21, completion_tokens=6)


@pytest.mark.parametrize("told", ["many", [1], float("inf"), -5, None])
def test_a_count_that_is_none_spoils_no_answer(told: object) -> None:
    usage = Usage()
    usage.add({"usage": {"prompt_tokens": told, "completion_tokens": 2}})

    assert usage == Usage(requests=1, prompt_tokens=0, completion_tokens=2)


def test_a_call_has_time_for_its_retries_and_for_all_before_it() -> None:
    patience = Patience(timeout_s=10, max_retries=1, concurrency=4, requests_per_minute=60)

    assert longest_call_s(patience, 8) >= 2 * (2 * 10 + 8)


def test_it_is_refused_for_training() -> None:
    with pytest.raises(ConfigError, match=r"OpenAIEngine gives text.*use it for rollout and eval"):
        refuse_text_only(engine_for(Server(url="http://x")))


@pytest.mark.parametrize(
    "patience",
    [{"timeout_s": 0.0}, {"max_retries": -1}, {"concurrency": 0}, {"requests_per_minute": 0.0}],
)
def test_settings_that_never_ask_are_refused(patience: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"need (timeout_s|more than 0)"):
        Patience(**patience)


def test_an_address_without_a_scheme_is_refused() -> None:
    with pytest.raises(ConfigError, match="'localhost:8000/v1' must begin with http"):
        engine_for(Server(url="localhost:8000/v1"))
