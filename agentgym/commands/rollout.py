"""`agentgym rollout`: trajectories without training, to look at.

Everything that can be known without the model's weights is checked before they are loaded: env,
policy, chat template, and the file that is to be written.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from agentgym.commands import Command
from agentgym.commands.language import load_language
from agentgym.commands.policies import cast_for
from agentgym.commands.recipes import rubric_of
from agentgym.commands.sections import EnvSection, ModelSection, PluginSection
from agentgym.config import Config
from agentgym.display import print_trajectories
from agentgym.errors import ConfigError
from agentgym.rollout import Player, SamplingDefaults, collect
from agentgym.store import append, go_on_with
from agentgym.trainer.game import Game, game_of
from agentgym.trainer.referee import scheduler_for
from agentgym.trainer.sampler import Sampler
from agentgym.trainer.tiny_policy import PATH as TINY_POLICY
from agentgym.trajectory import Budget, RolloutOutput, RolloutRequest, to_jsonl


class PlaySection(Config):
    """What is produced"""

    n: int = Field(8, ge=1)
    """Trajectories."""
    group_size: int = Field(1, ge=1)
    """Trajectories per task."""
    split: Literal["train", "eval"] = "eval"
    """Which tasks: those of training, or held-out ones."""
    policy: str = "model"
    """Who plays: model, oracle (the env's own), or scripted:FILE."""
    temperature: float = Field(1.0, ge=0)
    """Of sampling; 0 is greedy."""
    dtype: Literal["float32", "bfloat16", "float16", "auto"] = "float32"
    """Of the model's weights."""
    out: Path | None = None
    """File to write, one JSON line per trajectory as it ends."""
    resume: bool = False
    """Go on with an --out file: what is there is kept and not played again."""
    show: int = Field(8, ge=0)
    """How many trajectories to print in full."""


class RolloutConfig(EnvSection, ModelSection, PlaySection, PluginSection):
    """Play an environment without training, and look at the trajectories.

    A script (--policy scripted:FILE) is a YAML or JSON list of assistant texts, one per turn, or
    such lists by trajectory name (g0-m0, g1-*, *); in a .jsonl file, one text per line.
    """

    @model_validator(mode="after")
    def _whole_groups(self) -> Self:
        if self.n % self.group_size:
            raise ValueError(f"--n {self.n} is no multiple of --group-size {self.group_size}")
        return self


def rollout(settings: RolloutConfig) -> int:
    """Play, print and write; exit code 1 if every trajectory failed."""
    settings.load_plugins()
    game = game_of(settings.env, settings.env_args)
    rubric = rubric_of(settings, game)
    requests = _requests(settings, game)
    kept = _kept(settings.out, requests, resume=settings.resume)
    language = load_language(
        settings.model or str(TINY_POLICY),
        dialect_name=settings.dialect,
        template_args=settings.template_args,
        keep_history=settings.on_history_rewrite == "keep",
    )
    cast = cast_for(
        settings.policy,
        game,
        language,
        scheduler=scheduler_for(settings.scheduler, game, language.renderer),
        dtype=settings.dtype,
    )
    player = Player(
        engine=cast.engine,
        renderer=language.renderer,
        scheduler=cast.scheduler,
        budget=Budget(max_turns=settings.max_turns, max_sampled_tokens=settings.max_tokens),
        sampling=SamplingDefaults(temperature=settings.temperature),
        score=rubric.score_one,
        concurrency=settings.concurrency,
        max_failed_fraction=1.0,
    )
    missing = [request for request in requests if request.request_id not in kept]
    played = _play(missing, player, settings.out)
    console = Console()
    outputs = [*kept.values(), *played]
    print_trajectories(console, outputs, language.renderer.decode, show=settings.show)
    if settings.out is not None:
        console.print(f"\n{len(played)} trajectories added to {settings.out}", highlight=False)
    return int(all(output.stop_reason.is_failure for output in outputs))


def _requests(settings: RolloutConfig, game: Game) -> list[RolloutRequest]:
    sampler = Sampler(
        env=game.name,
        tasks=game.train if settings.split == "train" else game.held_out(),
        seed=settings.seed,
        group_size=settings.group_size,
        shuffle=False,
    )
    return sampler.groups(range(settings.n // settings.group_size))


def _kept(
    out: Path | None, requests: Sequence[RolloutRequest], *, resume: bool
) -> dict[str, RolloutOutput]:
    """Trajectories of an earlier run that need not be played again, by name.

    Raises:
        ConfigError: the file exists and is not to be continued, or holds something else.
    """
    if out is None:
        return {}
    if not out.parent.is_dir():
        raise ConfigError(f"--out: the folder {str(out.parent)!r} does not exist")
    if not out.exists() or not out.stat().st_size:
        return {}
    if not resume:
        raise ConfigError(f"{str(out)!r} exists: give another --out, or go on with it by --resume")
    wanted = {request.request_id: request for request in requests}
    kept = {}
    for output in go_on_with(out):
        if output.request_id in wanted:
            _refuse_another_run(out, output, wanted[output.request_id])
            kept[output.request_id] = output
    return kept


def _refuse_another_run(out: Path, output: RolloutOutput, request: RolloutRequest) -> None:
    played = (output.env, output.task_id, output.seed)
    if played != (request.env, request.task.id, request.seed):
        raise ConfigError(
            f"{str(out)!r} holds other trajectories: its {output.request_id} is {output.env} "
            f"{output.task_id} with seed {output.seed}, this run's is {request.env} "
            f"{request.task.id} with seed {request.seed}; give another --out"
        )


def _play(
    requests: Sequence[RolloutRequest], player: Player, out: Path | None
) -> list[RolloutOutput]:
    """Play with a progress bar; each trajectory is written as it ends."""
    columns = (TextColumn("playing"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as progress:
        bar = progress.add_task("", total=len(requests))

        def record(output: RolloutOutput) -> None:
            if out is not None:
                append(out, to_jsonl([output]))
            progress.advance(bar)

        return asyncio.run(_collect(requests, replace(player, on_output=record)))


async def _collect(requests: Sequence[RolloutRequest], player: Player) -> list[RolloutOutput]:
    try:
        return await collect(requests, player)
    finally:
        await player.engine.aclose()


COMMAND = Command(RolloutConfig, rollout)
