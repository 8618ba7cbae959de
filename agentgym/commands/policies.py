"""Who plays in `agentgym rollout`: a model, an env's oracle, or a script; each behind an engine.

Oracle and script speak the language of a real tokenizer, so that their trajectories are what a
model would have to produce, token by token.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import TypeAdapter, ValidationError

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
    """An engine that says what the env's oracle says."""

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


def openai_engine(address: str, language: Language) -> Engine:
    """An engine that asks a server to complete prompts.

    Args:
        address: URL up to `/v1`; after a `#`, the server's name for the model, else the language's.
        language: of the model that answers.
    """
    return _openai(address, language, None)


def openai_chat_engine(address: str, language: Language, scheduler: Watched) -> Engine:
    """Like `openai_engine`, but the server renders the conversation; tools are told in words."""

    def conversation(session: str) -> list[dict[str, Any]]:
        trajectory = scheduler.live[session]
        spoken = dialect(language.dialect)
        plain = without_tools(trajectory.messages, trajectory.schemas, spoken)
        return [{"role": message.role, "content": message.content} for message in plain]

    return _openai(address, language, conversation)


def _openai(
    address: str, language: Language, conversation: Callable[[str], list[dict[str, Any]]] | None
) -> Engine:
    from agentgym.engines.openai import Endpoint, OpenAIEngine, Wording

    url, _, model = address.partition("#")
    wording = Wording(
        encode=language.encode,
        decode=language.renderer.decode,
        stop_token_id=language.stop_token_id,
    )
    return OpenAIEngine(
        Endpoint(url=url, model=model or language.name), wording, conversation=conversation
    )


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


def cast_for(
    policy: str, game: Game, language: Language, *, scheduler: Scheduler, dtype: str
) -> Cast:
    """Engine and referee of a policy: `model`, `oracle`, `scripted:FILE`, `openai:URL#MODEL`
    (completions) or `openai-chat:URL#MODEL`.

    Raises:
        ConfigError: there is no such policy, or the env has no oracle.
    """
    if policy == "model":
        return Cast(model_engine(language, dtype), scheduler)
    if policy == "oracle":
        _refuse_without_oracle(game)
        watched = Watched(scheduler)
        return Cast(oracle_engine(watched, language), watched)
    if policy.startswith("scripted:"):
        return Cast(scripted_engine(Path(policy.removeprefix("scripted:")), language), scheduler)
    if policy.startswith("openai:"):
        return Cast(openai_engine(policy.removeprefix("openai:"), language), scheduler)
    if policy.startswith("openai-chat:"):
        watched = Watched(scheduler)
        address = policy.removeprefix("openai-chat:")
        return Cast(openai_chat_engine(address, language, watched), watched)
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
    return transformers_engine(model, decode=language.renderer.decode)
