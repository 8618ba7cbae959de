"""Envs over the OpenEnv protocol: a real server on loopback, real connections."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from agentgym import envs
from agentgym.envs import Task, TaskSet, TextEnv, TextStep
from agentgym.serving.app import ServingLimits, make_app

OPEN: "set[Talk]" = set()


class Talk(TextEnv):
    """Repeats; `over` ends, `fail` raises, `wait` takes its time."""

    def __init__(self) -> None:
        OPEN.add(self)

    def tasks(self, split: str = "train") -> TaskSet:
        return TaskSet.procedural(lambda i: Task(id=f"{split}-{i}", data={"word": f"w{i}"}))

    def start(self, task: Task) -> str:
        return f"{task['word']} {self.np_random.integers(1000)}"

    def respond(self, text: str) -> TextStep:
        if text == "fail":
            raise KeyError("broken")
        return TextStep(text.upper(), reward=0.25, terminated=text == "over")

    async def astep(self, action: Any) -> Any:
        if action.content == "wait":
            await asyncio.sleep(60)
        return await super().astep(action)

    async def aclose(self) -> None:
        OPEN.discard(self)


@pytest.fixture(autouse=True)
def nothing_is_left() -> Any:
    yield
    assert not OPEN


@asynccontextmanager
async def serving(
    make_env: Callable[[], envs.Env] = Talk, **limits: Any
) -> AsyncIterator[tuple[str, aiohttp.ClientSession]]:
    """A server; its address and a client."""
    app = make_app(make_env, name="talk", description="Talks.", limits=ServingLimits(**limits))
    runner = web.AppRunner(app, shutdown_timeout=1.0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    try:
        async with aiohttp.ClientSession() as client:
            yield f"http://{host}:{port}", client
    finally:
        await runner.cleanup()


async def asked(socket: aiohttp.ClientWebSocketResponse, message: Any) -> Any:
    text = message if isinstance(message, str) else json.dumps(message)
    await socket.send_str(text)
    return await socket.receive_json(timeout=5)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110 - another task closes, and says so to nobody
            await asyncio.sleep(0.01)


async def test_an_episode_over_a_websocket() -> None:
    """Reset, step, state, step to the end."""
    async with serving() as (url, client), client.ws_connect(f"{url}/ws") as socket:
        told = await asked(
            socket, {"type": "reset", "data": {"seed": 3, "task_index": 4, "episode_id": "e"}}
        )
        assert told["type"] == "observation"
        assert told["data"]["observation"]["messages"][0]["content"].startswith("w4 ")
        assert (told["data"]["reward"], told["data"]["done"]) == (None, False)
        told = await asked(socket, {"type": "step", "data": {"content": "hi"}})
        assert told["data"]["observation"]["messages"][0]["content"] == "HI"
        assert (told["data"]["reward"], told["data"]["done"]) == (0.25, False)
        state = await asked(socket, {"type": "state"})
        assert state["data"] == {"episode_id": "e", "step_count": 1, "task_id": "train-4"}
        told = await asked(socket, {"type": "step", "data": {"content": "over"}})
        assert told["data"]["done"]
        assert told["data"]["metadata"]["terminated"]


async def test_tools_are_told_and_called() -> None:
    """The calculator, played to its reward by its oracle."""
    env = envs.make("calculator")
    task = env.tasks("eval")[0]
    async with (
        serving(lambda: envs.make("calculator")) as (url, client),
        client.ws_connect(f"{url}/ws") as socket,
    ):
        told = await asked(socket, {"type": "reset", "data": {"task": task.model_dump()}})
        observation = told["data"]["observation"]
        assert [m["role"] for m in observation["messages"]] == ["system", "user"]
        assert observation["tools"] == [tool.to_schema() for tool in env.tools]
        call = {"name": "calculator", "arguments": {"expression": "1+2"}, "id": "c7"}
        told = await asked(socket, {"type": "step", "data": {"tool_calls": [call]}})
        assert told["data"]["observation"]["messages"] == [
            {"role": "tool", "content": "3", "tool_call_id": "c7", "name": "calculator"}
        ]
        answer = {"type": "step", "data": {"content": f"Answer: {task['answer']}"}}
        told = await asked(socket, answer)
        assert told["data"]["reward"] == 1.0
        assert told["data"]["metadata"]["rewards"] == {"correct": 1.0, "format": 1.0}


@pytest.mark.parametrize(
    ("message", "code", "text"),
    [
        ("{", "INVALID_JSON", "no JSON"),
        ("[" * 100_000, "INVALID_JSON", "no JSON"),
        ("[]", "VALIDATION_ERROR", "is an object"),
        ({"type": "dance"}, "UNKNOWN_TYPE", "'dance'"),
        ({"type": "reset", "data": {"seed": -1}}, "VALIDATION_ERROR", "seed"),
        ({"type": "step", "data": {"text": "hi"}}, "VALIDATION_ERROR", "text: Extra inputs"),
        ({"type": "step", "data": {"content": "hi"}}, "EXECUTION_ERROR", "call reset"),
        ({"type": "reset", "data": {"task": {"id": "x"}}}, "EXECUTION_ERROR", "KeyError: 'word'"),
    ],
)
async def test_mistakes_are_explained_and_the_session_goes_on(
    message: Any, code: str, text: str
) -> None:
    """One line, a code of the protocol's own, and the next message is answered."""
    async with serving() as (url, client), client.ws_connect(f"{url}/ws") as socket:
        told = await asked(socket, message)
        assert told["type"] == "error"
        assert told["data"]["code"] == code
        assert text in told["data"]["message"]
        assert (await asked(socket, {"type": "reset", "data": {}}))["type"] == "observation"


async def test_a_failing_env_is_reported() -> None:
    """And can be reset."""
    async with serving() as (url, client), client.ws_connect(f"{url}/ws") as socket:
        await asked(socket, {"type": "reset"})
        told = await asked(socket, {"type": "step", "data": {"content": "fail"}})
        assert told["data"] == {
            "message": "step: KeyError: 'broken'",
            "code": "EXECUTION_ERROR",
        }
        assert (await asked(socket, {"type": "reset"}))["type"] == "observation"


async def test_a_step_has_a_deadline() -> None:
    """The answer says so."""
    async with serving(timeout_s=0.2) as (url, client), client.ws_connect(f"{url}/ws") as socket:
        await asked(socket, {"type": "reset"})
        told = await asked(socket, {"type": "step", "data": {"content": "wait"}})
        assert "no answer within 0.2 s" in told["data"]["message"]


async def test_a_client_that_goes_away_closes_its_env_even_in_a_step() -> None:
    """Else forgotten connections eat every place."""
    async with serving() as (url, client):
        socket = await client.ws_connect(f"{url}/ws")
        await asked(socket, {"type": "reset"})
        await socket.send_json({"type": "step", "data": {"content": "wait"}})
        assert len(OPEN) == 1
        await socket.close()
        await until(lambda: not OPEN)


async def test_sessions_are_limited_and_apart() -> None:
    """Each has its own env; one too many is told so; a place that is free again can be taken."""
    async with serving(max_sessions=2) as (url, client):
        sockets = [await client.ws_connect(f"{url}/ws") for _ in range(2)]
        for index, socket in enumerate(sockets):
            await asked(socket, {"type": "reset", "data": {"task_index": index}})
        assert len(OPEN) == 2
        async with client.ws_connect(f"{url}/ws") as third:
            told = await third.receive_json(timeout=5)
        assert told["data"]["code"] == "CAPACITY_REACHED"
        assert told["data"]["max_sessions"] == 2
        async with client.post(f"{url}/reset", json={}) as response:
            assert response.status == 503
        await sockets[0].close()
        await until(lambda: len(OPEN) == 1)
        async with client.ws_connect(f"{url}/ws") as third:
            assert (await asked(third, {"type": "reset"}))["type"] == "observation"
        await sockets[1].close()


async def test_an_env_that_cannot_be_built_takes_no_place() -> None:
    """The client learns why."""

    def broken() -> envs.Env:
        raise SystemExit("no key")

    async with serving(broken, max_sessions=1) as (url, client):
        for _ in range(2):
            async with client.ws_connect(f"{url}/ws") as socket:
                told = await socket.receive_json(timeout=5)
            assert told["data"]["code"] == "FACTORY_ERROR"
            assert "no key" in told["data"]["message"]


async def test_an_episode_over_plain_http() -> None:
    """The session is named by its id and ends with the episode."""
    async with serving() as (url, client):
        async with client.post(f"{url}/reset", json={"task_index": 1}) as response:
            told = await response.json()
        session_id = told["metadata"]["session_id"]
        body = {"action": {"content": "hi"}, "session_id": session_id}
        async with client.post(f"{url}/step", json=body) as response:
            assert (await response.json())["observation"]["messages"][0]["content"] == "HI"
        async with client.get(f"{url}/state", params={"session_id": session_id}) as response:
            assert (await response.json())["step_count"] == 1
        body["action"] = {"content": "over"}
        async with client.post(f"{url}/step", json=body) as response:
            assert (await response.json())["done"]
        assert not OPEN
        async with client.post(f"{url}/step", json=body) as response:
            assert response.status == 404


async def test_forgotten_http_sessions_are_closed() -> None:
    """A place that nobody uses is given to who asks."""
    async with serving(max_sessions=1, idle_s=0.1) as (url, client):
        for _ in range(2):
            async with client.post(f"{url}/reset", json={}) as response:
                assert response.status == 200
            await asyncio.sleep(0.2)
        assert len(OPEN) == 1


class Clinging(Talk):
    """Is never done closing."""

    async def aclose(self) -> None:
        await super().aclose()
        await asyncio.sleep(60)


async def test_nobody_waits_for_the_sessions_of_others_to_close() -> None:
    """Not who finds a place, and a server that ends waits for all of them at once."""
    async with serving(Clinging, max_sessions=4, idle_s=0.1, timeout_s=1.5) as (url, client):
        for _ in range(3):
            async with client.post(f"{url}/reset", json={}):
                pass
        await asyncio.sleep(0.2)
        began = time.monotonic()
        async with client.post(f"{url}/reset", json={}) as response:
            assert response.status == 200
        assert time.monotonic() - began < 1.3
        ending = time.monotonic()

    assert time.monotonic() - ending < 4


async def test_a_refused_reset_takes_no_place() -> None:
    """The client was told no session, so nobody could ever close it."""
    async with serving(lambda: envs.make("calculator"), max_sessions=1) as (url, client):
        for _ in range(3):
            body = {"task_split": "nowhere", "task_index": 0}
            async with client.post(f"{url}/reset", json=body) as response:
                assert response.status == 400


async def test_failing_at_the_same_time_frees_one_place() -> None:
    """Each failing call closes the session; only the first of them gives its place back."""

    class Broken(Talk):
        async def astep(self, action: Any) -> Any:
            await asyncio.sleep(0.05)
            raise KeyError("broken")

    async with serving(Broken, max_sessions=1) as (url, client):
        async with client.post(f"{url}/reset", json={}) as response:
            session_id = (await response.json())["metadata"]["session_id"]
        body = {"action": {"content": "hi"}, "session_id": session_id}
        for response in await asyncio.gather(
            *(client.post(f"{url}/step", json=body) for _ in range(3))
        ):
            assert response.status in (404, 500)
            response.release()
        statuses = []
        for _ in range(2):
            async with client.post(f"{url}/reset", json={}) as response:
                statuses.append(response.status)

    assert statuses == [200, 503]


async def test_a_session_in_a_long_step_is_not_idle() -> None:
    """Its env must not be closed under it."""

    class Long(Talk):
        was_open = False

        async def astep(self, action: Any) -> Any:
            await asyncio.sleep(0.3)
            Long.was_open = self in OPEN
            return await super().astep(action)

    async with serving(Long, idle_s=0.1) as (url, client):
        async with client.post(f"{url}/reset", json={}) as response:
            session_id = (await response.json())["metadata"]["session_id"]
        body = {"action": {"content": "hi"}, "session_id": session_id}
        stepping = asyncio.create_task(client.post(f"{url}/step", json=body))
        await asyncio.sleep(0.2)
        async with client.post(f"{url}/reset", json={}):
            pass
        (await stepping).release()

    assert Long.was_open


async def test_an_env_that_takes_too_long_to_build_is_closed_when_it_is_there() -> None:
    """The client is not kept waiting, and the place comes back."""

    def slow() -> envs.Env:
        time.sleep(0.4)
        return Talk()

    async with serving(slow, max_sessions=1, timeout_s=0.1) as (url, client):
        async with client.post(f"{url}/reset", json={}) as response:
            assert response.status == 500
            assert "within 0.1 s" in await response.text()
        async with client.post(f"{url}/reset", json={}) as response:
            assert response.status == 503
        await asyncio.sleep(0.5)
        async with client.post(f"{url}/reset", json={}) as response:
            assert response.status == 500
        await asyncio.sleep(0.5)


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/step", '{"action": {"content": "hi"}}', 400),
        ("/step", '{"action": {"contents": "hi"}, "session_id": "x"}', 422),
        ("/step", '{"action": {}, "session_id": "x"}', 404),
        ("/reset", '{"seed": -2}', 422),
        ("/reset", "{", 400),
        ("/reset", b"\xff", 400),
        ("/nowhere", "{}", 404),
    ],
)
async def test_bad_requests_have_their_status(path: str, body: str | bytes, status: int) -> None:
    """And leave nothing open."""
    async with serving() as (url, client), client.post(f"{url}{path}", data=body) as response:
        assert response.status == status


async def test_what_the_server_tells_about_itself() -> None:
    """Health, metadata, schemas, and the state before any episode."""
    async with serving() as (url, client):

        async def get(path: str) -> Any:
            async with client.get(url + path) as response:
                return await response.json()

        assert await get("/health") == {"status": "healthy"}
        assert (await get("/metadata"))["name"] == "talk"
        assert set(await get("/schema")) == {"action", "observation", "reset_observation", "state"}
        assert "tool_calls" in (await get("/schema"))["action"]["properties"]
        assert await get("/state") == {"episode_id": None, "step_count": 0, "task_id": None}


async def test_pages_of_other_origins_are_refused() -> None:
    """A web page in a browser on this machine reaches loopback too."""
    async with serving() as (url, client):
        for origin, status in (("http://evil.example", 403), (url, 200)):
            async with client.get(f"{url}/health", headers={"Origin": origin}) as response:
                assert response.status == status
        renamed = {"Host": "evil.example", "Origin": "http://evil.example"}
        async with client.get(f"{url}/health", headers=renamed) as response:
            assert response.status == 403


async def test_shutting_down_closes_open_sessions_at_once() -> None:
    """Clients are hung up on."""
    async with serving() as (url, client):
        socket = await client.ws_connect(f"{url}/ws")
        await asked(socket, {"type": "reset"})
        async with client.post(f"{url}/reset", json={}) as response:
            assert response.status == 200
    assert not OPEN
    await socket.close()
