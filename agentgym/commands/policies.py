"""Who plays in `agentgym rollout`: a model, an env's oracle, or a script; each behind an engine.

Oracle and script speak the language of a real tokenizer, so that their trajectories are what a
model would have to produce, token by token.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import TypeAdapter, ValidationError

from agentgym.commands.endpoint_section import EndpointSection
from agentgym.commands.language import Language
from agentgym.config import parse_yaml
from agentgym.engines.base import Engine
from agentgym.engines.loading import load_model
from agentgym.engines.scripted import CallableEngine, EngineCall, ScriptedEngine
from agentgym.envs.contract import as_action
from agentgym.envs.oracle import HasOracle
from agentgym.errors import ConfigError
from agentgym.rendering import dialect
from agentgym.rendering.plain_tools import without_tools
from agentgym.rollout import NextTurn, Playing, Scheduler, Trajectory, TurnResult
from agentgym.rollout.game import Game
from agentgym.trajectory import StopReason, Turn

if TYPE_CHECKING:
    from agentgym.engines.openai import Endpoint

_SCRIPT = TypeAdapter[Any](list[str | list[int]] | dict[str, list[str | list[int]]])


class Watched(Scheduler):
    """Any scheduler, with its trajectories at hand while they are played."""

    def __init__(self, inner: Scheduler) -> None:
        self._inner = inner
        self.stop = inner.stop
        self.live: dict[str, Trajectory] = {}
        """By attempt id, the engine's name for a session."""

    async def run(self, playing: Playing) -> StopReason:
        return await self._inner.run(playing)

    async def on_trajectory_start(self, trajectory: Trajectory) -> None:
        self.live[trajectory.request.attempt_id] = trajectory
        await self._inner.on_trajectory_start(trajectory)

    async def on_turn_end(self, trajectory: Trajectory, turn: Turn) -> TurnResult:
        return await self._inner.on_turn_end(trajectory, turn)

    def check_finished(self, trajectory: Trajectory, turn: Turn) -> StopReason | None:
        return self._inner.check_finished(trajectory, turn)

    async def step(self, trajectory: Trajectory, turn: Turn) -> NextTurn:
        return await self._inner.step(trajectory, turn)

    async def on_trajectory_end(self, trajectory: Trajectory, reason: StopReason) -> None:
        self.live.pop(trajectory.request.attempt_id, None)
        await self._inner.on_trajectory_end(trajectory, reason)


def oracle_engine(scheduler: Watched, language: Language) -> Engine:
    """An engine that says what the env's oracle says, also where a turn is constrained."""

    def answer(call: EngineCall) -> str:
        trajectory = scheduler.live[call.session]
        env = trajectory.resources["env"].unwrapped
        assert isinstance(env, HasOracle)
        said = env.oracle(trajectory.request.task, list(trajectory.messages))
        return language.write(as_action(said))

    return CallableEngine(
        answer,
        encode=language.encode,
        decode=language.renderer.decode,
        stop_token_id=language.stop_token_id,
    )


def scripted_engine(path: Path, language: Language) -> Engine:
    """An engine that says what stands in a file (see `read_script`)."""
    return ScriptedEngine(
        read_script(path),
        encode=language.encode,
        decode=language.renderer.decode,
        stop_token_id=language.stop_token_id,
    )


def endpoint_of(address: str, language: Language, settings: EndpointSection) -> "Endpoint":
    """Whom to ask.

    Args:
        address: URL up to `/v1`; after a `#`, the server's name for the model, else the language's.
        language: of the model that answers.
        settings: how much to ask of it.
    """
    from agentgym.engines.openai import Endpoint

    url, _, model = address.partition("#")
    return Endpoint(
        url=url,
        model=model or language.name,
        key_variable=settings.endpoint_key_variable,
        patience=settings.patience,
    )


def openai_chat_engine(
    endpoint: "Endpoint", language: Language, scheduler: Watched, *, max_context: int | None = None
) -> Engine:
    """Like `openai_engine`, but the server renders the conversation; tools are told in words."""

    def conversation(session: str) -> list[dict[str, Any]]:
        trajectory = scheduler.live[session]
        spoken = dialect(language.dialect)
        plain = without_tools(trajectory.messages, trajectory.schemas, spoken)
        return [{"role": message.role, "content": message.content} for message in plain]

    return openai_engine(endpoint, language, conversation, max_context=max_context)


def openai_engine(
    endpoint: "Endpoint",
    language: Language,
    conversation: Callable[[str], list[dict[str, Any]]] | None = None,
    *,
    max_context: int | None = None,
) -> Engine:
    """An engine that asks a server to complete prompts, or to go on with a conversation."""
    from agentgym.engines.openai import UNKNOWN_CONTEXT, OpenAIEngine, Wording

    wording = Wording(
        encode=language.encode,
        decode=language.renderer.decode,
        stop_token_id=language.stop_token_id,
        has_special_words=language.has_special_words,
        has_special_start=language.has_special_start,
    )
    room = max_context or UNKNOWN_CONTEXT
    return OpenAIEngine(endpoint, wording, conversation=conversation, max_context=room)


def read_script(path: Path) -> list[Any] | dict[str, list[Any]]:
    """Turns of every trajectory: a YAML or JSON list of texts (or lists of token ids), or such
    lists by trajectory name (`g0-m0`, `*`); in a `.jsonl` file, one turn per line.

    Raises:
        ConfigError: the file cannot be read or holds something else.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the script {str(path)!r}: {error}") from error
    lines = filter(str.strip, text.splitlines())
    is_lines = path.suffix == ".jsonl"
    script = (
        [parse_yaml(line, str(path)) for line in lines] if is_lines else parse_yaml(text, str(path))
    )
    try:
        checked: list[Any] | dict[str, list[Any]] = _SCRIPT.validate_python(script, strict=True)
    except ValidationError as error:
        raise ConfigError(
            f"{path}: a script is a list of assistant texts, or such lists by trajectory name"
        ) from error
    return checked


class Cast(NamedTuple):
    """Who samples, and who referees."""

    engine: Engine
    scheduler: Scheduler
    turn_timeout_s: float = 300.0


@dataclass(frozen=True, kw_only=True)
class Stand:
    """What policies are made of."""

    game: Game
    language: Language
    scheduler: Scheduler
    endpoint: EndpointSection
    turn_timeout_s: float
    """Of the endpoint."""
    model_timeout_s: float
    """Of the engine over the model, for a turn."""
    model_engine: Callable[[], Engine]
    """An engine over the model; loads it."""


def cast_for(policy: str, stand: Stand) -> Cast:
    """Engine and referee of a policy: `model`, `oracle`, `scripted:FILE`, `openai:URL#MODEL`
    (completions) or `openai-chat:URL#MODEL`.

    Raises:
        ConfigError: there is no such policy, or the env has no oracle.
    """
    kind, _, where = policy.partition(":")
    language, scheduler = stand.language, stand.scheduler
    if policy == "model":
        return Cast(stand.model_engine(), scheduler, stand.model_timeout_s)
    if policy == "oracle":
        _refuse_without_oracle(stand.game)
        watched = Watched(scheduler)
        return Cast(oracle_engine(watched, language), watched)
    if kind == "scripted":
        return Cast(scripted_engine(Path(where), language), scheduler)
    if kind == "openai":
        endpoint = endpoint_of(where, language, stand.endpoint)
        engine = openai_engine(endpoint, language, max_context=stand.endpoint.endpoint_context)
        return Cast(engine, scheduler, stand.turn_timeout_s)
    if kind == "openai-chat":
        watched, endpoint = Watched(scheduler), endpoint_of(where, language, stand.endpoint)
        context = stand.endpoint.endpoint_context
        engine = openai_chat_engine(endpoint, language, watched, max_context=context)
        return Cast(engine, watched, stand.turn_timeout_s)
    raise ConfigError(
        f"--policy {policy!r}: should be model, oracle, scripted:FILE, openai:URL#MODEL or "
        "openai-chat:URL#MODEL"
    )


def _refuse_without_oracle(game: Game) -> None:
    env = game.make_env()
    env.close()
    if not isinstance(env.unwrapped, HasOracle):
        raise ConfigError(
            f"the env {game.name!r} has no oracle: give it a method oracle(task, messages), or "
            "choose another --policy"
        )


def model_engine(language: Language, dtype: str) -> Engine:
    """An engine over a model in this process.

    Raises:
        ConfigError: it cannot be loaded or served.
    """
    from agentgym.engines.transformers import transformers_engine

    model = load_model(language.name, dtype)
    decode, tokenizer = language.renderer.decode, language.tokenizer
    return transformers_engine(model, decode=decode, tokenizer=tokenizer)
