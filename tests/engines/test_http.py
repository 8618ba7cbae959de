"""Single attempts and calls to a server that may be busy, broken or gone."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web

from agentgym.engines.http import (
    AskAgainError,
    FailedCallError,
    JsonClient,
    Patience,
    RefusedError,
    UnreachableError,
)
from agentgym.errors import ConfigError, EngineError

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@pytest.fixture
async def serve() -> AsyncIterator[Callable[..., Awaitable[JsonClient]]]:
    """Starts a server with one handler; a client of it."""
    runners: list[web.AppRunner] = []
    clients: list[JsonClient] = []

    async def start(handler: Handler, **settings: Any) -> JsonClient:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", handler)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        runners.append(runner)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        patience = Patience(**{"timeout_s": 2, "max_retries": 0, **settings})
        clients.append(JsonClient(url, token="secret", patience=patience))
        return clients[-1]

    yield start
    for client in clients:
        await client.aclose()
    for runner in runners:
        await runner.cleanup()


def answer(status: int, text: str, **headers: str) -> Handler:
    async def handler(request: web.Request) -> web.StreamResponse:
        return web.Response(status=status, text=text, headers=headers)

    return handler


async def hang_up(request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


@pytest.mark.parametrize(
    ("status", "is_busy"), [(408, True), (429, True), (503, True), (500, False), (502, False)]
)
async def test_one_attempt_says_whether_the_server_is_busy_or_broken(
    serve: Callable[..., Awaitable[JsonClient]], status: int, is_busy: bool
) -> None:
    client = await serve(answer(status, "no", **{"Retry-After": "3"}))
    with pytest.raises(AskAgainError) as caught:
        await client.post_once("/x", {})

    assert (caught.value.is_busy, caught.value.wait_s) == (is_busy, 3.0)
    assert not isinstance(caught.value, UnreachableError)


@pytest.mark.parametrize("status", [401, 403, 404])
async def test_who_is_not_let_in_is_told_so(
    serve: Callable[..., Awaitable[JsonClient]], status: int
) -> None:
    client = await serve(answer(status, "who are you"))
    with pytest.raises(RefusedError, match="who are you") as caught:
        await client.post_once("/x", {})

    assert caught.value.status == status
    assert isinstance(caught.value, ConfigError)


async def test_no_answer_is_told_from_a_bad_one(
    serve: Callable[..., Awaitable[JsonClient]],
) -> None:
    client = await serve(hang_up)
    with pytest.raises(UnreachableError):
        await client.post_once("/x", {})
    with pytest.raises(UnreachableError):
        await client.call("GET", "/x", timeout_s=1)
    with pytest.raises(UnreachableError, match="Connect"):
        await JsonClient("http://127.0.0.1:9", token=None, patience=Patience()).call(
            "GET", "/x", timeout_s=1
        )


async def test_what_cannot_be_unpacked_is_one_line(
    serve: Callable[..., Awaitable[JsonClient]],
) -> None:
    client = await serve(answer(200, "{}", **{"Content-Encoding": "gzip"}))
    with pytest.raises(UnreachableError, match=r"ClientPayloadError: .*gzip") as caught:
        await client.post_once("", {})

    assert "\n" not in str(caught.value)


async def test_a_call_has_its_own_deadline(serve: Callable[..., Awaitable[JsonClient]]) -> None:
    async def slow(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(10)
        return web.Response()

    client = await serve(slow)
    started = time.monotonic()
    with pytest.raises(UnreachableError, match=r"no answer within 0\.2 s"):
        await client.call("GET", "/x", timeout_s=0.2)

    assert time.monotonic() - started < 1


@pytest.mark.parametrize(
    ("text", "value"), [('{"a": 1}', {"a": 1}), ("", ""), ("Success: loaded.", "Success: loaded.")]
)
async def test_a_call_takes_any_answer(
    serve: Callable[..., Awaitable[JsonClient]], text: str, value: object
) -> None:
    """vLLM answers some calls with nothing, and some with a sentence."""
    client = await serve(answer(200, text))

    assert await client.call("POST", "/x", {"b": 2}, timeout_s=1) == value


async def test_an_error_keeps_all_that_the_server_said(
    serve: Callable[..., Awaitable[JsonClient]],
) -> None:
    client = await serve(answer(500, "x" * 1000))
    with pytest.raises(FailedCallError) as caught:
        await client.call("POST", "/x", {}, timeout_s=1)

    assert (caught.value.status, len(caught.value.text)) == (500, 1000)
    assert len(str(caught.value)) < 300


async def test_calls_do_not_wait_for_requests(serve: Callable[..., Awaitable[JsonClient]]) -> None:
    """A server's health is asked for while all places are taken."""

    asked, enough = asyncio.Event(), asyncio.Event()

    async def handler(request: web.Request) -> web.StreamResponse:
        if request.path == "/slow":
            asked.set()
            await enough.wait()
        return web.json_response(request.headers["Authorization"])

    client = await serve(handler, concurrency=1)
    slow = asyncio.create_task(client.post_once("/slow", {}))
    await asked.wait()
    said = await client.call("GET", "/fast", timeout_s=10)
    enough.set()

    assert said == "Bearer secret" == await slow


async def test_what_is_no_json_is_no_answer(serve: Callable[..., Awaitable[JsonClient]]) -> None:
    client = await serve(answer(200, "<html>"))
    with pytest.raises(EngineError, match="no JSON: <html>"):
        await client.post_once("/x", {})


async def test_connections_of_loops_that_are_over_are_closed(
    serve: Callable[..., Awaitable[JsonClient]],
) -> None:
    """Each `asyncio.run` of a notebook leaves some, which no other loop can use."""
    open_ends: list[asyncio.BaseTransport] = []

    async def handler(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        open_ends.append(request.transport)
        return web.json_response(len(open_ends))

    client = await serve(handler)
    for number in range(3):
        once = asyncio.to_thread(lambda: asyncio.run(client.post_once("/x", {})))
        assert await once == number + 1
    assert await client.post_once("/x", {}) == 4
    assert len(set(open_ends)) == 4
    await client.aclose()
    async with asyncio.timeout(5):
        while not all(end.is_closing() for end in open_ends):  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    assert await client.post_once("/x", {}) == 5


async def test_a_request_that_is_given_up_makes_room(
    serve: Callable[..., Awaitable[JsonClient]],
) -> None:
    """Whether it waits for its turn, for its answer, or to be asked again."""

    async def handler(request: web.Request) -> web.StreamResponse:
        if request.path == "/busy":
            return web.Response(status=429, headers={"Retry-After": "60"})
        await asyncio.sleep(60.0 if request.path == "/slow" else 0.0)
        return web.json_response(request.path)

    client = await serve(handler, concurrency=2, max_retries=3)
    given_up = [asyncio.create_task(client.post(path, {})) for path in ("/slow", "/busy", "/fast")]
    await asyncio.sleep(0.1)
    assert not any(task.done() for task in given_up)
    for task in given_up:
        task.cancel()
    await asyncio.wait(given_up)
    both = [client.post("/fast", {}) for _ in range(2)]

    assert await asyncio.wait_for(asyncio.gather(*both), 2) == ["/fast"] * 2


async def test_requests_of_all_kinds_share_the_places(
    serve: Callable[..., Awaitable[JsonClient]],
) -> None:
    running, peak = 0, 0

    async def handler(request: web.Request) -> web.StreamResponse:
        nonlocal running, peak
        running += 1
        peak = max(peak, running)
        await asyncio.sleep(0.02)
        running -= 1
        return web.json_response(peak)

    client = await serve(handler, concurrency=3)
    ways = (client.post, client.post_once)
    await asyncio.gather(*[way("/x", {}) for way in ways for _ in range(5)])

    assert peak == 3


async def test_a_server_that_is_silent_is_told_of_once(
    serve: Callable[..., Awaitable[JsonClient]], caplog: pytest.LogCaptureFixture
) -> None:
    """Not by each of those that ask it again; once more after it has answered."""
    deaf = 0

    async def often_deaf(request: web.Request) -> web.StreamResponse:
        nonlocal deaf
        deaf += 1
        return await hang_up(request) if deaf <= 4 else web.json_response("here")

    client = await serve(often_deaf, max_retries=2)
    assert await asyncio.gather(*[client.post("/", {}) for _ in range(4)]) == ["here"] * 4
    deaf = 3
    assert await client.post("/", {}) == "here"

    first, second = [record.getMessage() for record in caplog.records]
    assert first.startswith(f"{client.url}: ServerDisconnectedError")
    assert first.endswith("; up to 2 more attempts")
    assert second == first


@pytest.mark.parametrize("url", ["http://", "http:///v1", "http://here:99999", "http://[::1", "x"])
def test_what_is_no_url_is_refused_before_it_is_asked(url: str) -> None:
    """Else it would be tried again and again, as if somebody could answer."""
    with pytest.raises(ConfigError, match="the endpoint"):
        JsonClient(url, token=None, patience=Patience())


def test_a_key_that_no_header_can_hold_is_refused() -> None:
    """Such as one that was read from a file with its line break."""
    with pytest.raises(ConfigError, match="the key for http://here holds a line break") as caught:
        JsonClient("http://here", token="sesame\n", patience=Patience())

    assert "sesame" not in str(caught.value)


async def test_json_that_is_too_deep_is_none(
    serve: Callable[..., Awaitable[JsonClient]],
) -> None:
    client = await serve(answer(200, "[" * 100_000))
    with pytest.raises(EngineError, match=r"no JSON: \[\["):
        await client.post_once("/x", {})

    assert await client.call("GET", "/x", timeout_s=2) == "[" * 100_000


async def test_a_long_pause_that_a_busy_server_asks_for_is_told_of(
    serve: Callable[..., Awaitable[JsonClient]], caplog: pytest.LogCaptureFixture
) -> None:
    """Else a run stands still for minutes without a word."""
    client = await serve(answer(429, "full", **{"Retry-After": "3600"}), max_retries=2)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(client.post("/x", {}), 0.3)

    (record,) = caplog.records
    assert record.getMessage() == (
        f"{client.url}: status 429: full; up to 2 more attempts, 60 s from one to the next"
    )


async def test_a_date_beyond_all_dates_names_no_wait(
    serve: Callable[..., Awaitable[JsonClient]],
) -> None:
    far = "Mon, 1 Jan 99999999999999 00:00:00 GMT"
    client = await serve(answer(503, "no", **{"Retry-After": far}))
    with pytest.raises(AskAgainError) as caught:
        await client.post_once("/x", {})

    assert caught.value.wait_s is None
