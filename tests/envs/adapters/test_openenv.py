"""The client for OpenEnv servers: against this package's own server, and against rude ones."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import WSMsgType, web

from agentgym import envs
from agentgym.envs.adapters.openenv import OpenEnvEnv
from agentgym.errors import ConfigError, EnvError
from agentgym.messages import MalformedCall, Message, assistant
from agentgym.serving.app import ServingLimits, make_app
from agentgym.trajectory import Task

Reply = Callable[[web.WebSocketResponse, dict[str, Any]], Awaitable[None]]


@asynccontextmanager
async def running(app: web.Application) -> AsyncIterator[str]:
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield "http://{}:{}".format(*runner.addresses[0][:2])
    finally:
        await runner.cleanup()


def foreign(reply: Reply, properties: dict[str, Any], required: list[str] | None = None) -> Any:
    """A server with the action schema of an env that is not agentgym's."""

    async def schema(request: web.Request) -> web.Response:
        action = {"type": "object", "properties": {**properties, "metadata": {"type": "object"}}}
        return web.json_response({"action": action | {"required": required or []}})

    async def socket(request: web.Request) -> web.WebSocketResponse:
        response = web.WebSocketResponse()
        await response.prepare(request)
        async for message in response:
            if message.type is WSMsgType.TEXT:
                await reply(response, json.loads(message.data))
        return response

    app = web.Application()
    app.add_routes([web.get("/schema", schema), web.get("/ws", socket)])
    return running(app)


async def echo(socket: web.WebSocketResponse, message: dict[str, Any]) -> None:
    """Repeats what it got; pays 1 and ends on `stop`."""
    if message["type"] == "close":
        return
    data = message.get("data", {})
    told = json.dumps(data, sort_keys=True)
    is_over = "stop" in told
    await socket.send_json(
        {
            "type": "observation",
            "data": {
                "observation": {"echoed": told, "metadata": {}},
                "reward": 1 if is_over else None,
                "done": is_over,
            },
        }
    )


async def test_the_calculator_far_away_is_the_calculator() -> None:
    """Same prompts, tools, results and rewards as in this process."""
    near = envs.make("calculator")
    task = near.tasks("eval")[2]
    app = make_app(lambda: envs.make("calculator"), name="calculator")
    async with running(app) as url:
        far = envs.make("openenv", url=url)
        remote = far.tasks("eval")[2]
        said = await far.areset(seed=0, options={"task": remote})
        assert said[0] == (await near.areset(seed=0, options={"task": task}))[0]
        assert [t.to_schema() for t in far.tools] == [t.to_schema() for t in near.tools]
        history = list(said[0])
        for _ in range(9):
            action = near.oracle(task, history)  # type: ignore[attr-defined]
            one, two = await near.astep(action), await far.astep(action)
            assert one[:4] == two[:4]
            history += [action, *one[0]]
            if one[2]:
                break
        await far.aclose()

    assert two[4]["rewards"] == {"correct": 1.0, "format": 1.0}
    assert two[4]["stop_reason"] == "final_answer"


async def test_calls_that_cannot_be_read_are_answered_far_away_too() -> None:
    """They are no final answer."""
    app = make_app(lambda: envs.make("calculator"), name="calculator")
    broken = Message(
        role="assistant", malformed_calls=(MalformedCall(id="m", text="{", reason="no end"),)
    )
    async with running(app) as url:
        env = OpenEnvEnv(url)
        await env.areset(seed=0)
        observation, _, terminated, _, _ = await env.astep(broken)
        await env.aclose()

    assert not terminated
    assert "no end" in observation[0].content


async def test_text_goes_into_the_only_text_field() -> None:
    """Beside fields that need not be given."""
    fields = {"message": {"type": "string"}, "times": {"type": "integer"}}
    async with foreign(echo, fields) as url:
        env = OpenEnvEnv(url, reset_args={"level": 3})
        observation, _ = await env.areset(options={"task": Task(id="t", data={"seed": 5})})
        assert json.loads(observation[0].content) == {"episode_id": "t", "seed": 5, "level": 3}
        observation, reward, terminated, _, info = await env.astep("hello")
        assert json.loads(observation[0].content) == {"message": "hello"}
        assert (reward, terminated, info) == (0.0, False, {})
        _, reward, terminated, truncated, info = await env.astep("stop")
        await env.aclose()

    assert (reward, terminated, truncated) == (1.0, True, False)
    assert info == {"rewards": {"score": 1.0}}


async def test_other_actions_are_written_as_json() -> None:
    """The prompt shows the schema; what is no JSON object is answered without a step."""
    fields = {"row": {"type": "integer"}, "column": {"type": "integer"}}
    async with foreign(echo, fields, ["row", "column"]) as url:
        env = OpenEnvEnv(url)
        observation, _ = await env.areset(seed=0)
        assert '"column"' in observation[0].content
        assert "no JSON" in (await env.astep("left"))[0][0].content
        assert "no JSON object" in (await env.astep("[1]"))[0][0].content
        observation, *_ = await env.astep('```json\n{"row": 1, "column": 2}\n```')
        await env.aclose()

    assert json.loads(observation[0].content) == {"row": 1, "column": 2}


async def test_an_episode_that_was_never_rewarded_is_unscored() -> None:
    """No reward is not a reward of 0."""

    async def silent(socket: web.WebSocketResponse, message: dict[str, Any]) -> None:
        data = {
            "observation": {"a": 1, "b": "x"},
            "reward": None,
            "done": message["type"] == "step",
        }
        await socket.send_json({"type": "observation", "data": data})

    async with foreign(silent, {"text": {"type": "string"}}) as url:
        env = OpenEnvEnv(url, observation_field="b")
        observation, _ = await env.areset(seed=0)
        *_, info = await env.astep("?")
        await env.aclose()

    assert observation[0].content == "x"
    assert info == {"rewards": {"score": None}}


async def hangs(socket: web.WebSocketResponse, message: dict[str, Any]) -> None:
    if message["type"] == "reset":
        await echo(socket, message)


async def hangs_up(socket: web.WebSocketResponse, message: dict[str, Any]) -> None:
    await hangs(socket, message)
    if message["type"] == "step":
        await socket.close()


async def babbles(socket: web.WebSocketResponse, message: dict[str, Any]) -> None:
    await hangs(socket, message)
    if message["type"] == "step":
        await socket.send_str("<html>")


async def lies(socket: web.WebSocketResponse, message: dict[str, Any]) -> None:
    await hangs(socket, message)
    if message["type"] == "step":
        await socket.send_json({"type": "state", "data": {}})


@pytest.mark.parametrize(
    ("reply", "complaint"),
    [
        (hangs, "step: no answer within 0.3 s"),
        (hangs_up, "step: the server closed the connection"),
        (babbles, "step: Expecting value"),
        (lies, "step: answered with"),
    ],
)
async def test_a_lost_connection_fails_the_episode_and_is_not_taken_up(
    reply: Reply, complaint: str
) -> None:
    """A new connection would be another episode; the next reset makes one."""
    async with foreign(reply, {"text": {"type": "string"}}) as url:
        env = OpenEnvEnv(url, timeout_s=0.3)
        await env.areset(seed=0)
        with pytest.raises(EnvError, match=complaint):
            await env.astep("hi")
        with pytest.raises(EnvError, match="the connection is lost"):
            await env._ask("step", {"text": "hi"})
        assert (await env.areset(seed=0))[0]
        await env.aclose()
        await env.aclose()


async def test_errors_of_the_server_are_passed_on() -> None:
    """With its code; a full server is no reason to wait for ever."""
    app = make_app(lambda: envs.make("calculator"), name="c", limits=ServingLimits(max_sessions=1))
    async with running(app) as url:
        one, two = OpenEnvEnv(url), OpenEnvEnv(url)
        await one.areset(seed=0)
        with pytest.raises(EnvError, match="reset: CAPACITY_REACHED: all 1 sessions"):
            await two.areset(seed=0)
        await two.aclose()
        await one.aclose()
        for _ in range(100):
            try:
                await two.areset(seed=0)
                break
            except EnvError:
                await asyncio.sleep(0.02)
        await two.aclose()


async def test_nobody_there_is_one_line() -> None:
    """Of the trajectory, as a server may come back."""
    env = OpenEnvEnv("http://127.0.0.1:9")

    with pytest.raises(EnvError, match=r"http://127\.0\.0\.1:9: "):
        await env.areset(seed=0)


@pytest.mark.parametrize("url", ["", "localhost:8000", "ftp://x", "http://"])
def test_what_is_no_address_is_refused(url: str) -> None:
    """Before anything is played."""
    with pytest.raises(ConfigError, match="address of an OpenEnv server"):
        envs.make("openenv", url=url)


async def test_a_cut_episode_keeps_what_it_collected() -> None:
    """Nothing was rewarded: unscored."""
    async with foreign(echo, {"text": {"type": "string"}}) as url:
        env = OpenEnvEnv(url)
        await env.areset(seed=0)
        await env.astep(assistant("x"))
        assert await env.acut() == {"score": None}
        await env.aclose()
