"""`agentgym rollout`: trajectories without training, to look at.

Everything that can be known without the model's weights is checked before they are loaded: env,
policy, chat template, and the file that is to be written.
"""

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator
from rich.console import Console

from agentgym.commands import Command
from agentgym.commands.endpoint_section import EndpointSection
from agentgym.commands.engine_section import EngineSection
from agentgym.commands.engines import sampler_maker
from agentgym.commands.language import Language, load_language
from agentgym.commands.playing import Plan, Results, play, take_up
from agentgym.commands.policies import Cast, Stand, cast_for, model_engine
from agentgym.commands.recipes import rubric_of
from agentgym.commands.sandboxes import settle_sandbox
from agentgym.commands.sections import EnvSection, ModelSection, PluginSection, SandboxSection
from agentgym.config import Config
from agentgym.display import print_trajectories
from agentgym.engines.base import Engine
from agentgym.engines.weights import OnServers
from agentgym.errors import ConfigError, OutageError
from agentgym.rollout import Player, SamplingDefaults
from agentgym.rollout.game import Game, game_of
from agentgym.rollout.referee import scheduler_for
from agentgym.rollout.sampler import Sampler
from agentgym.trainer.tiny_policy import PATH as TINY_POLICY
from agentgym.trajectory import Budget

NUM_ROWS = 1000
"""Of the summary; the means are over all trajectories."""


class PlaySection(Config):
    """What is produced"""

    n: int = Field(8, ge=1)
    """Trajectories."""
    group_size: int = Field(1, ge=1)
    """Trajectories per task."""
    split: Literal["train", "eval"] = "eval"
    """Which tasks: those of training, or held-out ones."""
    policy: str = "model"
    """Who plays: model (sampled by --engine), oracle (the env's own), scripted:FILE, or any
    OpenAI-compatible endpoint: openai:URL#MODEL is given prompts to complete, openai-chat:URL#MODEL
    the conversation; URL goes up to and with /v1."""
    temperature: float = Field(1.0, ge=0, allow_inf_nan=False)
    """Of sampling; 0 is greedy."""
    dtype: Literal["float32", "bfloat16", "float16", "auto"] = "float32"
    """Of the weights of a model that is loaded here; servers have their own."""
    out: Path | None = None
    """File to write, one JSON line per trajectory as it ends."""
    resume: bool = False
    """Go on with an --out file: what is there is kept and not played again, unless it failed."""
    show: int = Field(8, ge=0)
    """How many trajectories to print in full."""


class RolloutConfig(
    EnvSection,
    ModelSection,
    PlaySection,
    EngineSection,
    EndpointSection,
    SandboxSection,
    PluginSection,
):
    """Play an environment without training, and look at the trajectories.

    A script (--policy scripted:FILE) is a YAML or JSON list of assistant texts, one per turn, or
    such lists by trajectory name (g0-m0, g1-*, *); in a .jsonl file, one text per line.
    """

    @model_validator(mode="after")
    def _whole_groups(self) -> Self:
        if self.n % self.group_size:
            raise ValueError(f"--n {self.n} is no multiple of --group-size {self.group_size}")
        return self

    @model_validator(mode="after")
    def _one_player(self) -> Self:
        if self.policy != "model" and self.engine_name != "transformers":
            raise ValueError(
                f"--policy {self.policy} and --engine {self.engine_name} both say what plays: "
                "give one"
            )
        return self


def rollout(settings: RolloutConfig) -> int:
    """Play, print and write; exit code 1 if every trajectory failed."""
    settings.load_plugins()
    game = game_of(settings.env, settings.env_args)
    rubric = rubric_of(settings, game)
    plan = _plan(settings, game)
    results = Results(num_kept=max(settings.show, NUM_ROWS))
    done = _done(settings, plan, results)
    settle_sandbox(settings, (*game.sandboxes, *rubric.sandbox_specs()))
    language = load_language(
        settings.model or str(TINY_POLICY),
        dialect_name=settings.dialect,
        template_args=settings.template_args,
        on_rewrite=settings.on_history_rewrite,
        today=settings.template_date,
    )
    cast = _cast(settings, game, language)
    player = Player(
        engine=cast.engine,
        renderer=language.renderer,
        scheduler=cast.scheduler,
        budget=Budget(max_turns=settings.max_turns, max_sampled_tokens=settings.max_tokens),
        sampling=SamplingDefaults(temperature=settings.temperature),
        score=rubric.score_one,
        concurrency=settings.concurrency,
        engine_timeout_s=cast.turn_timeout_s,
        max_failed_fraction=1.0,
    )
    missing = settings.n - len(done)
    try:
        play(plan.requests(done), player, settings.out, results, missing)
    except (KeyboardInterrupt, OutageError):
        _say_what_is_kept(settings, results.tally.num)
        raise
    console, tally = Console(), results.tally
    decode = language.renderer.decode
    print_trajectories(console, results.first, decode, show=settings.show, tally=tally)
    _say_what_was_asked(console, cast.engine)
    _say_whose_weights(console, cast.engine)
    if settings.out is not None:
        line = f"\n{missing} trajectories added to {settings.out}"
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    _say_what_failed(settings, results)
    return int(tally.num_failed == tally.num)


def _cast(settings: RolloutConfig, game: Game, language: Language) -> Cast:
    stand = Stand(
        game=game,
        language=language,
        scheduler=scheduler_for(settings.scheduler, game, language.renderer),
        endpoint=settings,
        turn_timeout_s=settings.turn_timeout_s(settings.concurrency),
        model_timeout_s=settings.sampling_timeout_s,
        model_engine=lambda: _model_engine(settings, language),
    )
    return cast_for(settings.policy, stand)


def _model_engine(settings: RolloutConfig, language: Language) -> Engine:
    make = sampler_maker(settings, language, max_tokens=settings.max_tokens, dtype=settings.dtype)
    engine = make()
    return model_engine(language, settings.dtype) if engine is None else engine


def _say_what_was_asked(console: Console, engine: Engine) -> None:
    from agentgym.engines.openai import OpenAIEngine

    if isinstance(engine, OpenAIEngine):
        usage = engine.usage
        line = (
            f"\nthe endpoint answered {usage.requests} requests: {usage.prompt_tokens} prompt "
            f"tokens, {usage.completion_tokens} completion tokens by its count"
        )
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def _say_whose_weights(console: Console, engine: Engine) -> None:
    """Servers keep what the last training run gave them."""
    if isinstance(engine, OnServers) and engine.policy_version:
        line = (
            f"\nsampled with weights of version {engine.policy_version}, which a training run has "
            "left on the server: start it again for those of its model"
        )
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def _say_what_failed(settings: RolloutConfig, results: Results) -> None:
    if not results.failure:
        return
    tally, again = results.tally, ""
    if settings.out is not None:
        again = "; the same command with --resume plays them again"
    line = f"{tally.num_failed} of {tally.num} trajectories failed, as {results.failure}{again}"
    Console(stderr=True).print(line, highlight=False, markup=False, soft_wrap=True)


def _say_what_is_kept(settings: RolloutConfig, num: int) -> None:
    line = f"stopped after {num} of {settings.n} trajectories"
    if settings.out is not None:
        line += f"; they are in {settings.out}: the same command with --resume goes on"
    Console(stderr=True).print(line, highlight=False, markup=False, soft_wrap=True)


def _plan(settings: RolloutConfig, game: Game) -> Plan:
    sampler = Sampler(
        env=game.name,
        tasks=game.train if settings.split == "train" else game.held_out(),
        seed=settings.seed,
        group_size=settings.group_size,
        shuffle=False,
    )
    return Plan(sampler, settings.n // settings.group_size)


def _done(settings: RolloutConfig, plan: Plan, results: Results) -> set[str]:
    """Names of what an earlier run has played.

    Raises:
        ConfigError: the file exists and is not to be continued, or holds something else.
    """
    out = settings.out
    if out is None:
        return set()
    if not out.parent.is_dir():
        raise ConfigError(f"--out: the folder {str(out.parent)!r} does not exist")
    if not out.exists() or not out.stat().st_size:
        return set()
    if not settings.resume:
        raise ConfigError(f"{str(out)!r} exists: give another --out, or go on with it by --resume")
    return take_up(out, plan, results)


COMMAND = Command(RolloutConfig, rollout)
