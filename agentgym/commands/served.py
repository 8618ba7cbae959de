"""Servers held against the run that wants to sample from them, before anything is loaded."""

import asyncio
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from agentgym.commands.engine_section import KEY_VARIABLE, EngineSection
from agentgym.commands.language import Language
from agentgym.config import flag_of
from agentgym.deadlines import together
from agentgym.engines.http import FailedCallError, JsonClient, UnreachableError
from agentgym.engines.vllm.health import Facts, OtherKeyError, look, until_alive, until_going
from agentgym.engines.vllm.settings import Deadlines, VllmServers
from agentgym.errors import ConfigError

_AT_ONCE_S = 2.0
"""How long a server may take to answer before people are told that it is waited for."""
_SAMPLE = "Was ist 12 * (3 + 4)? Don't say “ungefähr”.\n"
_CALL_S = 30.0

Say = Callable[[str], None]


def servers_of(settings: EngineSection) -> VllmServers:
    """Which servers, and how long to wait for them.

    Raises:
        ConfigError: a server stands twice, or the variable of the key that was named is not set.
    """
    variable = settings.server_key_variable
    if variable != KEY_VARIABLE and not os.environ.get(variable):
        raise ConfigError(f"{flag_of('server_key_variable')} {variable}: it is not set")
    return VllmServers(
        urls=settings.server_urls,
        model=settings.server_model,
        key_variable=variable,
        deadlines=settings.deadlines,
    )


async def check_servers(
    servers: VllmServers, language: Language, max_tokens: int, *, say: Say
) -> None:
    """Wait for all servers, and refuse those that serve something else.

    Args:
        servers: to be looked at.
        language: of the model that they must serve.
        max_tokens: that a trajectory may sample.
        say: tells people what is waited for.

    Raises:
        ConfigError: one was not started by `agentgym serve`, wants another key, or serves another
            model or a shorter context.
        EngineError: one was not there in time.
    """
    token = _token(servers)
    checks = [_check(url, token, servers, language, max_tokens, say) for url in servers.urls]
    await together([asyncio.ensure_future(check) for check in checks])


async def refuse_paused(servers: VllmServers) -> None:
    """Hold servers that are sampled from as they are against one that waits for its weights.

    Raises:
        WrongServerError: nobody lets it go on.
        EngineError: one does not answer.
    """
    clients = [
        JsonClient(url, token=_token(servers), patience=servers.patience) for url in servers.urls
    ]
    try:
        waits = [until_going(client, servers.deadlines.gone_s) for client in clients]
        await together([asyncio.ensure_future(wait) for wait in waits])
    finally:
        for client in clients:
            await client.aclose()


def _token(servers: VllmServers) -> str | None:
    return os.environ.get(servers.key_variable)


async def _check(
    url: str, token: str | None, servers: VllmServers, language: Language, max_tokens: int, say: Say
) -> None:
    client = JsonClient(url, token=token, patience=servers.patience)
    try:
        await _wait(client, servers.deadlines, say)
        facts = await _look(client, servers, has_key=bool(token))
        if servers.model is None:
            _refuse_other_model(url, facts, language)
        await _refuse_other_tokens(client, facts, language)
        _refuse_short_context(url, facts, max_tokens)
    finally:
        await client.aclose()


async def _wait(client: JsonClient, deadlines: Deadlines, say: Say) -> None:
    at_once_s = min(_AT_ONCE_S, deadlines.connect_s)
    try:
        await until_alive(client, at_once_s)
    except UnreachableError:
        if deadlines.connect_s <= at_once_s:
            raise
        say(f"waiting up to {deadlines.connect_s:g} s for a server at {client.url}")
        await until_alive(client, deadlines.connect_s - at_once_s, waited_s=at_once_s)


async def _look(client: JsonClient, servers: VllmServers, *, has_key: bool) -> Facts:
    deadlines = replace(servers.deadlines, connect_s=_CALL_S)
    try:
        return await look(client, servers.model, deadlines)
    except OtherKeyError as error:
        variable, flag = servers.key_variable, flag_of("server_key_variable")
        if has_key:
            raise ConfigError(f"{error} than that of {variable}") from error
        raise ConfigError(
            f"{client.url} wants an API key: set {variable}, or name another variable with {flag}"
        ) from error


def _refuse_other_model(url: str, facts: Facts, language: Language) -> None:
    ours, theirs = Path(language.name), Path(facts.model)
    if facts.model == language.name or (
        ours.is_dir() and theirs.is_dir() and ours.samefile(theirs)
    ):
        return
    raise ConfigError(
        f"{url} serves {facts.model!r}, and this is a run of {language.name!r}: give the same "
        f"--model, or --server-model {facts.model} if they are the same"
    )


async def _refuse_other_tokens(client: JsonClient, facts: Facts, language: Language) -> None:
    """What has no tokenizer is held against the weights alone, at their first update."""
    body = {"model": facts.model, "prompt": _SAMPLE, "add_special_tokens": False}
    try:
        answer = await client.call("POST", "/tokenize", body, timeout_s=_CALL_S)
    except FailedCallError:
        return
    told = isinstance(answer, dict) and "tokens" in answer
    if told and list(answer["tokens"]) != language.encode(_SAMPLE):
        raise ConfigError(
            f"{client.url} serves {facts.model!r}, whose tokens are not those of "
            f"{language.name!r}: serve the model that is played"
        )


def _refuse_short_context(url: str, facts: Facts, max_tokens: int) -> None:
    if max_tokens > facts.max_model_len:
        raise ConfigError(
            f"--max-tokens {max_tokens} is more than the {facts.max_model_len} tokens of context "
            f"that {url} serves: lower it, or start the server with a higher --max-context"
        )
