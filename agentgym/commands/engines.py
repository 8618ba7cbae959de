"""From engine settings to an engine: held against the machine and the servers first, made late.

What can be known without loading anything is known when `engine_maker` returns: vLLM is installed,
the servers are there, were started for this, and serve the model that is asked for.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from typing import Literal

from agentgym.commands.engine_section import EngineSection
from agentgym.commands.language import Language
from agentgym.config import flag_of
from agentgym.engines.base import Engine
from agentgym.engines.loading import made_for, refuse_long_context
from agentgym.errors import ConfigError, EngineError, MissingExtraError
from agentgym.threads import run_coroutine

_GIB = 1 << 30
Dtype = Literal["auto", "float32", "bfloat16", "float16"]
MakeEngine = Callable[[], Engine | None]


def engine_maker(
    settings: EngineSection, language: Language, *, max_tokens: int, dtype: Dtype = "auto"
) -> MakeEngine:
    """What makes the engine; of `--engine transformers` it makes none.

    Args:
        settings: of the command.
        language: of the model that is played.
        max_tokens: that a trajectory may sample.
        dtype: of vLLM in this process.

    Raises:
        UsageError: the engine cannot be had, or would sample from something else.
    """
    match settings.engine_name:
        case "transformers":
            return lambda: None
        case "vllm":
            _refuse_short_context(settings, language, max_tokens)
            return _in_process(settings, language, dtype)
        case "vllm-server":
            return _over_servers(settings, language, max_tokens)


def sampler_maker(
    settings: EngineSection, language: Language, *, max_tokens: int, dtype: Dtype
) -> MakeEngine:
    """The same for whoever samples from servers as they are, and gives them no weights.

    Raises:
        UsageError: the engine cannot be had, or does not sample.
    """
    make = engine_maker(settings, language, max_tokens=max_tokens, dtype=dtype)
    if settings.engine_name == "vllm-server":
        from agentgym.commands.served import refuse_paused, servers_of

        run_coroutine(refuse_paused(servers_of(settings)))
    return make


@contextmanager
def closing(make_engine: MakeEngine) -> Iterator[Engine | None]:
    """The engine, closed on every way out."""
    engine = make_engine()
    try:
        yield engine
    finally:
        if engine is not None:
            run_coroutine(engine.aclose())


def _refuse_short_context(settings: EngineSection, language: Language, max_tokens: int) -> None:
    refuse_long_context(language.name, settings.max_context)
    room = settings.max_context or made_for(language.name)
    if room is not None and max_tokens > room:
        raise ConfigError(
            f"{flag_of('max_tokens')} {max_tokens} is more than the {room} tokens of context that "
            f"vLLM has for {language.name!r}: lower it"
        )


def _in_process(settings: EngineSection, language: Language, dtype: Dtype) -> MakeEngine:
    if find_spec("vllm") is None:
        raise MissingExtraError("--engine vllm", "vllm")
    from agentgym.engines.vllm.local_settings import VllmSettings

    share, gib = settings.gpu_memory_utilization, settings.kv_cache_gb
    chosen = VllmSettings(
        dtype=dtype,
        max_context=settings.max_context,
        kv_cache_bytes=None if gib is None else int(gib * _GIB),
    )
    if share is not None:
        chosen = replace(chosen, gpu_memory_utilization=share)

    def make() -> Engine:
        from agentgym.engines.vllm.engine import VllmEngine

        return VllmEngine(language.name, chosen)

    return make


def _over_servers(settings: EngineSection, language: Language, max_tokens: int) -> MakeEngine:
    from agentgym.commands.served import check_servers, servers_of
    from agentgym.engines.vllm.server import VllmServerEngine

    servers = servers_of(settings)
    try:
        run_coroutine(check_servers(servers, language, max_tokens, say=_say))
    except EngineError as error:
        raise ConfigError(
            f"{error}; start one with `agentgym serve --model {language.name}`, or give another "
            "--server-url"
        ) from error
    return lambda: VllmServerEngine(servers)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
