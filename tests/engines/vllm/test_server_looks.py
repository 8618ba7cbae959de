"""A server is held against what training needs before the first turn."""

import time
from dataclasses import replace
from typing import Any

import pytest
from vllm_protocol_kit import (
    SHORT,
    FakeVllm,
    TestWeights,
    ask,
    engine_over,
    fake,
    page,
    running,
    silence,
    status,
)

from agentgym.engines.vllm.settings import Deadlines, VllmServers
from agentgym.errors import ConfigError, EngineError

__all__ = ["fake"]


@pytest.mark.parametrize(
    ("state", "settings", "message"),
    [
        ({}, {"model": "other"}, "serves policy, not other"),
        ({"logprobs_mode": "raw_logprobs"}, {}, "gives raw_logprobs.*processed_logprobs"),
        ({"key": "secret"}, {}, "wants another API key"),
        ({"always": {"/weight_info": status(404)}}, {}, "no /weight_info: .*agentgym serve"),
        (
            {"always": {"/inference/v1/abort_requests": status(403)}},
            {},
            "no /inference/v1/abort_requests: .*agentgym serve",
        ),
    ],
)
async def test_a_server_that_cannot_be_used_is_refused(
    state: dict[str, Any], settings: dict[str, Any], message: str
) -> None:
    async with running(FakeVllm(**state)) as server, engine_over(server, **settings) as engine:
        with pytest.raises(ConfigError, match=message):
            await ask(engine)

    assert not server.turns


@pytest.mark.parametrize("path", ["/v1/models", "/weight_info", "/server_info", "/get_world_size"])
async def test_a_page_is_no_answer(fake: FakeVllm, path: str) -> None:
    """A proxy may say that all is well, and show a page of its own."""
    fake.always[path] = page
    async with engine_over(fake) as engine:
        with pytest.raises(EngineError, match=r"is not the server's: .*Maintenance"):
            await ask(engine)


async def test_a_server_that_falls_silent_while_it_is_looked_at_is_named(
    monkeypatch: pytest.MonkeyPatch, fake: FakeVllm
) -> None:
    """It may be one of many."""
    monkeypatch.setattr("agentgym.engines.vllm.health._PER_CALL_S", 0.2)
    fake.always["/weight_info"] = silence
    async with engine_over(fake) as engine:
        with pytest.raises(EngineError, match=f"{fake.url}/weight_info: no answer within 0.2 s"):
            await ask(engine)


async def test_a_page_in_the_middle_of_an_update_leaves_the_old_weights(fake: FakeVllm) -> None:
    fake.faults["/reset_prefix_cache"].append(page)
    async with engine_over(fake) as engine:
        with pytest.raises(EngineError, match=r"did not forget .*have those they had"):
            await engine.update_weights(TestWeights(1))
        await ask(engine)

    assert fake.label == "default"


@pytest.mark.parametrize("model", ["policy", "/m"])
async def test_a_model_is_known_by_its_name_and_by_its_folder(model: str) -> None:
    async with running(FakeVllm()) as server, engine_over(server, model=model) as engine:
        await ask(engine)

    assert server.turns[0]["model"] == "policy"


async def test_a_key_is_taken_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_API_KEY", "secret")
    async with running(FakeVllm(key="secret")) as server, engine_over(server) as engine:
        await ask(engine)


async def test_no_server_is_one_error_in_time() -> None:
    async with running(FakeVllm()) as server:
        pass
    async with engine_over(server, deadlines=replace(SHORT, connect_s=0.5)) as engine:
        started = time.monotonic()
        with pytest.raises(EngineError, match=r"was not there within 0\.5 s: .*refused|Connect"):
            await ask(engine)

    assert time.monotonic() - started < 2


@pytest.mark.parametrize("settings", [{"urls": ()}, {"urls": ("a", "a")}, {"concurrency": 0}])
def test_settings_out_of_range_are_named(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"each once|concurrency="):
        VllmServers(**{"urls": ("http://127.0.0.1:1",), **settings})


def test_a_deadline_must_come() -> None:
    with pytest.raises(ConfigError, match="turn_s=0"):
        Deadlines(turn_s=0)
