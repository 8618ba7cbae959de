"""A server that speaks like an OpenAI endpoint, and an engine over it.

from openai_kit import server  # the fixture
"""

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web

from agentgym.engines.base import Generation, Sampling
from agentgym.engines.http import Patience
from agentgym.engines.openai import Conversation, Endpoint, OpenAIEngine, Wording

END = 0
Answer = Callable[[int], web.Response | Awaitable[web.Response]]


def said(text: str, reason: str | None = "stop", **more: Any) -> web.Response:
    return web.json_response({"choices": [{"text": text, "finish_reason": reason, **more}]})


def chatted(message: dict[str, Any], reason: str = "stop") -> web.Response:
    return web.json_response({"choices": [{"message": message, "finish_reason": reason}]})


@dataclass
class Server:
    """A real server on a free port that answers by the number of the request."""

    url: str
    bodies: list[dict[str, Any]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    answer: Answer = field(default=lambda number: said("hi"))

    async def handle(self, request: web.Request) -> web.Response:
        number = len(self.bodies)
        self.bodies.append(await request.json())
        self.paths.append(request.path)
        self.keys.append(request.headers.get("Authorization"))
        self.times.append(time.monotonic())
        response = self.answer(number)
        return response if isinstance(response, web.Response) else await response


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    state = Server(url="")
    app = web.Application()
    app.router.add_post("/v1/completions", state.handle)
    app.router.add_post("/v1/chat/completions", state.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    state.url = f"http://{host}:{port}/v1"
    yield state
    await runner.cleanup()


def engine_for(
    server: Server,
    *,
    conversation: Conversation | None = None,
    wording: dict[str, bool] | None = None,
    **patience: Any,
) -> OpenAIEngine:
    words = Wording(
        encode=lambda text: [ord(letter) for letter in text],
        decode=lambda ids: "".join(map(chr, ids)),
        stop_token_id=END,
        **wording or {},
    )
    settings = Patience(**{"timeout_s": 5.0, **patience})
    endpoint = Endpoint(url=server.url, model="m", patience=settings)
    return OpenAIEngine(endpoint, words, conversation=conversation, max_context=100)


async def ask(engine: OpenAIEngine, prompt: str = "2+2", **sampling: Any) -> Generation:
    settings = Sampling(**{"max_tokens": 20, "seed": 7, **sampling})
    try:
        return await engine.generate(tuple(map(ord, prompt)), settings, session="s")
    finally:
        await engine.aclose()


def refusing(name: str, text: str, server: Server, param: str | None = None) -> Answer:
    """An endpoint that takes everything but one setting."""

    def answer(number: int) -> web.Response:
        if name in server.bodies[number]:
            error = {"message": text, "param": param}
            return web.json_response({"error": error}, status=400)
        return said("hi")

    return answer
