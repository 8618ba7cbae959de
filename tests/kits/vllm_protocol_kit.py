"""A real HTTP server that speaks vLLM 0.32's protocol, and breaks it where a test says so.

Its tokens follow from prompt, seed and weights, so that a test can tell who sampled them.
"""

import asyncio
import hashlib
import json
from collections import Counter, defaultdict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest
import torch
from aiohttp import web

from agentgym.engines.base import Generation, Sampling
from agentgym.engines.vllm.server import VllmServerEngine
from agentgym.engines.vllm.settings import Deadlines, VllmServers
from agentgym.engines.weights import Bucket, TensorSpec

Fault = Callable[[web.Request], Awaitable[web.StreamResponse]]
PROMPT = (5, 6, 7)
SHORT = Deadlines(connect_s=5, turn_s=20, hung_s=0.4, gone_s=1.2, update_s=5, resume_s=0.6)


def status(code: int, text: str = "", **headers: str) -> Fault:
    """Answer with an error."""

    async def fault(request: web.Request) -> web.StreamResponse:
        return web.json_response({"error": {"message": text}}, status=code, headers=headers)

    return fault


async def page(request: web.Request) -> web.StreamResponse:
    """What a proxy shows."""
    return web.Response(text="<h1>Maintenance</h1>", content_type="text/html")


async def cut(request: web.Request) -> web.StreamResponse:
    """Close the connection without an answer."""
    assert request.transport is not None
    request.transport.abort()
    await asyncio.sleep(0)
    return web.Response()


async def silence(request: web.Request) -> web.StreamResponse:
    """Say nothing for as long as any test waits."""
    await asyncio.sleep(60)
    return web.Response()


@dataclass
class FakeVllm:
    """State of one server."""

    label: str = "default"
    backend: str | None = "agentgym_shm"
    model: str = "policy"
    dtype: str = "float32"
    context: int = 64
    logprobs_mode: str = "processed_logprobs"
    key: str | None = None
    token_s: float = 0.0
    """What a token takes."""
    faults: dict[str, deque[Fault]] = field(default_factory=lambda: defaultdict(deque))
    """By path; each spoils one request."""
    always: dict[str, Fault] = field(default_factory=dict)
    """By path; spoils all."""
    seen: list[tuple[str, Any]] = field(default_factory=list)
    """Path and body of all requests."""
    staged: list[str] = field(default_factory=list)
    weights: list[str] = field(default_factory=list)
    """Names that the last finished update brought."""
    adapters: dict[str, str] = field(default_factory=dict)
    running: int = 0
    most_running: int = 0
    url: str = ""
    after_swap: Fault | None = None
    """Instead of the answer to a swap that was made."""
    _transports: set[asyncio.BaseTransport] = field(default_factory=set)
    _going: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def is_paused(self) -> bool:
        return not self._going.is_set()

    def num(self, path: str) -> int:
        """Requests to a path."""
        return Counter(seen for seen, _ in self.seen)[path]

    @property
    def turns(self) -> list[Any]:
        """Bodies of the turns asked for."""
        return [body for path, body in self.seen if path == "/inference/v1/generate"]

    def app(self) -> web.Application:
        """With every endpoint; `/health` needs no key."""
        self._going.set()
        app = web.Application(middlewares=[self._spoil], client_max_size=1 << 26)
        app.router.add_route("*", "/{path:.*}", self.answer)
        return app

    @web.middleware
    async def _spoil(self, request: web.Request, handler: Any) -> web.StreamResponse:
        self.seen.append((request.path, await body_of(request)))
        if self.key and request.headers.get("Authorization") != f"Bearer {self.key}":
            return web.json_response({"error": "Unauthorized"}, status=401)
        if self.faults[request.path]:
            return await self.faults[request.path].popleft()(request)
        if request.path in self.always:
            return await self.always[request.path](request)
        response: web.StreamResponse = await handler(request)
        return response

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """What a server says that nothing spoils."""
        body = await body_of(request)
        match request.path:
            case "/inference/v1/generate":
                return await self._generate(request, body)
            case "/finish_weight_update":
                return await self._finish(request, body)
            case "/pause":
                self._going.clear()
            case "/resume":
                self._going.set()
            case "/start_weight_update":
                self.staged = []
            case "/update_weights":
                self.staged += [str(entry["name"]) for entry in body["update_info"]["entries"]]
            case "/v1/load_lora_adapter" | "/v1/unload_lora_adapter" as path:
                return self._change_adapters(path, body["lora_name"], body.get("lora_path"))
        return web.json_response(self._said(request.path))

    def _change_adapters(self, path: str, name: str, folder: str) -> web.Response:
        is_loaded = name in self.adapters
        if path == "/v1/unload_lora_adapter" and not is_loaded:
            return web.json_response({"error": {"message": "adapter"}}, status=404)
        if path == "/v1/unload_lora_adapter":
            del self.adapters[name]
            return web.Response()
        if is_loaded:
            error = {"message": "The lora adapter 'x' has already been loaded. If you want to"}
            return web.json_response({"error": error}, status=400)
        self.adapters[name] = folder
        return web.Response()

    def _said(self, path: str) -> Any:
        cards = [{"id": self.model, "root": "/m", "parent": None, "max_model_len": self.context}]
        cards += [
            {"id": name, "root": root, "parent": self.model, "max_model_len": None}
            for name, root in self.adapters.items()
        ]
        config = {
            "model_config": {"logprobs_mode": self.logprobs_mode, "dtype": self.dtype},
            "weight_transfer_config": self.backend and {"backend": self.backend},
        }
        return {
            "/v1/models": {"data": cards},
            "/weight_info": {"weight_version": self.label},
            "/server_info": {"vllm_config": config},
            "/get_world_size": {"world_size": 1},
            "/is_paused": {"is_paused": self.is_paused},
            "/reset_prefix_cache": {"success": True},
        }.get(path)

    async def _finish(self, request: web.Request, body: Any) -> web.StreamResponse:
        self.weights, self.label = self.staged, body["weight_version"]
        if self.after_swap is not None:
            return await self.after_swap(request)
        return web.json_response({})

    def cut_running(self) -> None:
        """As when the process is killed: connections of turns under way end."""
        for transport in self._transports:
            transport.abort()

    async def _generate(self, request: web.Request, body: Any) -> web.StreamResponse:
        if body["model"] not in (self.model, *self.adapters):
            return web.json_response({"error": {"message": "no such model"}}, status=404)
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        transport = request.transport
        assert transport is not None
        self._transports.add(transport)
        try:
            ids, labels = [], []
            for index in range(body["sampling_params"]["max_tokens"]):
                await asyncio.sleep(self.token_s)
                await self._going.wait()
                labels.append(self.label)
                ids.append(token_of(body, self.label, index))
        finally:
            self.running -= 1
            self._transports.discard(transport)
        return web.json_response(reply_of(ids, labels))


async def body_of(request: web.Request) -> Any:
    """What was posted; `None` if nothing was."""
    text = await request.text()
    return json.loads(text) if text else None


def token_of(body: Any, label: str, index: int) -> int:
    """What the weights of a label sample."""
    seed = body["sampling_params"]["seed"]
    key = json.dumps([body["token_ids"], seed, label, body["model"], index])
    return hashlib.sha256(key.encode()).digest()[0] % 64


def reply_of(ids: list[int], labels: list[str], **changes: Any) -> dict[str, Any]:
    """An answer of `/inference/v1/generate`."""
    spans: list[dict[str, Any]] = []
    for index, label in enumerate(labels):
        if not spans or spans[-1]["version"] != label:
            spans.append({"version": label, "start": index, "end": index})
        spans[-1]["end"] = index + 1
    content = [{"token_id": token, "logprob": -0.5} for token in ids]
    choice = {
        "token_ids": ids,
        "logprobs": {"content": content},
        "finish_reason": "length",
        "stop_reason": None,
        "weight_versions": spans,
    }
    return {"choices": [choice | changes]}


@asynccontextmanager
async def running(fake: FakeVllm, port: int = 0) -> AsyncIterator[FakeVllm]:
    """Listen on loopback."""
    runner = web.AppRunner(fake.app(), handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port, reuse_address=True)
    await site.start()
    fake.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield fake
    finally:
        await runner.cleanup()


@asynccontextmanager
async def engine_over(
    *fakes: FakeVllm, deadlines: Deadlines = SHORT, **settings: Any
) -> AsyncIterator[VllmServerEngine]:
    """An engine over running servers."""
    urls = tuple(fake.url for fake in fakes)
    engine = VllmServerEngine(VllmServers(urls=urls, deadlines=deadlines, **settings))
    try:
        yield engine
    finally:
        await engine.aclose()


@asynccontextmanager
async def two_servers(
    deadlines: Deadlines = SHORT, **state: Any
) -> AsyncIterator[tuple[FakeVllm, FakeVllm, VllmServerEngine]]:
    """Two servers in the same state, and an engine over both."""
    async with (
        running(FakeVllm(**state)) as one,
        running(FakeVllm(**state)) as two,
        engine_over(one, two, deadlines=deadlines) as engine,
    ):
        yield one, two, engine


async def ask(engine: VllmServerEngine, *, session: str = "s", **sampling: Any) -> Generation:
    """One turn of 4 tokens with seed 1, unless told otherwise."""
    settings = Sampling(**{"max_tokens": 4, "seed": 1, **sampling})
    return await engine.generate(PROMPT, settings, session=session)


@dataclass
class TestWeights:
    """Two small tensors in two buckets."""

    __test__ = False

    version: int
    kind: Literal["full", "lora"] = "full"
    lora_config: Mapping[str, Any] = field(default_factory=dict)
    before_second: Callable[[], None] = lambda: None
    """Called in the thread that waits for the second bucket."""

    @property
    def specs(self) -> Mapping[str, TensorSpec]:
        return {name: TensorSpec(shape=(2,), dtype="float32") for name in "ab"}

    def buckets(self) -> Iterator[Bucket]:
        yield {"a": torch.full((2,), float(self.version))}
        self.before_second()
        yield {"b": torch.full((2,), float(self.version))}


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that is silent for good is not given a last second."""
    monkeypatch.setattr("agentgym.engines.vllm.health._LAST_S", 0.5)


@pytest.fixture
async def fake() -> AsyncIterator[FakeVllm]:
    async with running(FakeVllm()) as server:
        yield server
