"""Servers held against a run: which are waited for, which are taken, which are refused."""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import ClientSession, web
from vllm_protocol_kit import FakeVllm, running, status

from agentgym.commands.engine_section import EngineSection
from agentgym.commands.language import Language, load_language
from agentgym.commands.served import check_servers, refuse_paused, servers_of
from agentgym.engines.vllm.settings import VllmServers
from agentgym.errors import ConfigError, EngineError, UsageError, WrongServerError
from agentgym.trainer.tiny_policy import PATH

ROOM = 64
"""Tokens of context that the servers have."""


@pytest.fixture(scope="module")
def language() -> Language:
    return load_language(str(PATH), dialect_name="auto", template_args={}, on_rewrite="fork")


async def said_of(
    *fakes: FakeVllm,
    language: Language,
    max_tokens: int = ROOM,
    wait_s: float = 5.0,
    **settings: str,
) -> list[str]:
    """What people are told while these servers are looked at."""
    said: list[str] = []
    async with AsyncExitStack() as stack:
        urls = tuple([(await stack.enter_async_context(running(fake))).url for fake in fakes])
        section = EngineSection(server_url=urls, server_timeout=wait_s, **settings)
        await check_servers(servers_of(section), language, max_tokens, say=said.append)
    return said


async def test_a_server_of_the_same_model_is_taken_without_a_word(language: Language) -> None:
    assert await said_of(FakeVllm(model=str(PATH)), language=language) == []


async def test_one_folder_may_have_two_names(language: Language, tmp_path: Path) -> None:
    link = tmp_path / "model"
    link.symlink_to(PATH)

    assert await said_of(FakeVllm(model=str(link)), language=language) == []
    with pytest.raises(ConfigError, match="serves 'elsewhere', and this is a run of"):
        await said_of(FakeVllm(model="elsewhere"), language=language)
    named = await said_of(FakeVllm(model="elsewhere"), language=language, server_model="elsewhere")
    assert named == []


async def test_a_server_without_a_tokenizer_is_held_against_its_weights_later(
    language: Language,
) -> None:
    fake = FakeVllm(model=str(PATH), always={"/tokenize": status(400, "no tokenizer")})

    assert await said_of(fake, language=language) == []
    assert fake.num("/tokenize") == 1


async def test_tokens_are_compared_with_text_that_tokenizers_part_in_different_ways(
    language: Language,
) -> None:
    fakes = [FakeVllm(model=str(PATH)), FakeVllm(model=str(PATH))]
    seen: list[str] = []

    async def tokens(request: web.Request) -> web.StreamResponse:
        body = await request.json()
        seen.append(body["prompt"])
        assert body["add_special_tokens"] is False
        return web.json_response({"tokens": language.encode(body["prompt"])})

    async def other_tokens(request: web.Request) -> web.StreamResponse:
        return web.json_response({"tokens": language.encode((await request.json())["prompt"])[:-1]})

    fakes[0].always["/tokenize"] = tokens
    assert await said_of(fakes[0], language=language) == []
    assert any(not letter.isascii() for letter in seen[0])
    fakes[1].always["/tokenize"] = other_tokens
    with pytest.raises(ConfigError, match="whose tokens are not those of"):
        await said_of(*fakes, language=language)


async def test_a_context_must_hold_what_may_be_sampled(language: Language) -> None:
    with pytest.raises(ConfigError, match=f"--max-tokens {ROOM + 1} is more than the {ROOM} "):
        await said_of(FakeVllm(model=str(PATH)), language=language, max_tokens=ROOM + 1)


async def test_people_are_told_of_a_server_that_takes_long(
    language: Language, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And it is taken once it is there."""
    monkeypatch.setattr("agentgym.commands.served._AT_ONCE_S", 0.3)
    fake = FakeVllm(model=str(PATH))
    fake.faults["/health"].extend([status(503)] * 2)
    said = await said_of(fake, language=language)

    assert said == [f"waiting up to 5 s for a server at {fake.url}"]


async def test_the_time_that_was_given_is_the_time_that_is_told(
    language: Language, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though it is waited for in two parts."""
    monkeypatch.setattr("agentgym.commands.served._AT_ONCE_S", 0.3)
    fake = FakeVllm(model=str(PATH), always={"/health": status(503)})

    with pytest.raises(EngineError, match=r"was not there within 0\.7 s"):
        await said_of(fake, language=language, wait_s=0.7)


async def test_one_of_two_that_is_not_there_is_named_within_the_time(language: Language) -> None:
    fakes = FakeVllm(model=str(PATH)), FakeVllm(model=str(PATH))
    fakes[1].always["/health"] = status(503)
    clock = asyncio.get_running_loop().time
    started = clock()
    with pytest.raises(EngineError, match=r"was not there within 0\.4 s") as caught:
        await said_of(*fakes, language=language, wait_s=0.4)

    assert fakes[1].url in str(caught.value)
    assert clock() - started < 2


async def test_a_server_that_waits_for_its_weights_is_not_sampled_from() -> None:
    """A trainer that was killed in the middle of an update leaves it so."""
    async with running(FakeVllm()) as fake:
        servers = servers_of(EngineSection(server_url=(fake.url,), server_timeout=0.4))
        await refuse_paused(servers)
        async with ClientSession() as session:
            await session.post(f"{fake.url}/pause")
            with pytest.raises(WrongServerError, match=r"paused for 0\.4 s.*killed while it did"):
                await refuse_paused(servers)
            waiting = asyncio.create_task(refuse_paused(servers))
            await session.post(f"{fake.url}/resume")
            await waiting


async def test_the_key_is_the_named_variables(
    language: Language, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VLLM_API_KEY", raising=False)
    monkeypatch.setenv("THEIRS", "secret")
    fake = FakeVllm(model=str(PATH), key="secret")

    assert await said_of(fake, language=language, server_key_variable="THEIRS") == []
    with pytest.raises(ConfigError, match="wants an API key: set VLLM_API_KEY, or name another"):
        await said_of(fake, language=language)
    monkeypatch.setenv("VLLM_API_KEY", "wrong")
    with pytest.raises(ConfigError, match="wants another API key than that of VLLM_API_KEY"):
        await said_of(fake, language=language)
    monkeypatch.delenv("THEIRS")
    with pytest.raises(UsageError, match="--server-key-variable THEIRS: it is not set"):
        servers_of(EngineSection(server_url=("http://a:1",), server_key_variable="THEIRS"))


def test_the_time_to_wait_is_for_servers_that_do_not_answer() -> None:
    """What a turn or an update may take is no setting of the command line."""
    patient = servers_of(EngineSection(server_url=("http://a:1",), server_timeout=7))
    plain = VllmServers(urls=("http://a:1",))

    assert patient.deadlines == replace(plain.deadlines, connect_s=7, gone_s=7, hung_s=7)
