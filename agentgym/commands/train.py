"""`agentgym train`: checks first, from cheap to dear; then the weights; then the run folder.

A run that is refused leaves nothing on disk.
"""

import shlex
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.console import Console
from rich.table import Table

from agentgym.commands import Command
from agentgym.commands.engines import MakeEngine, closing, engine_maker
from agentgym.commands.language import Language, load_language
from agentgym.commands.processes import from_main, main_leaves_first, rank, world_size
from agentgym.commands.recipes import rubric_of, trainer_settings
from agentgym.commands.sandboxes import settle_sandbox
from agentgym.commands.stopping import StopRequest
from agentgym.commands.train_config import TrainConfig, free_folders
from agentgym.config import to_yaml
from agentgym.engines.base import Engine
from agentgym.errors import ConfigError
from agentgym.progress import Progress, duration, progress_for
from agentgym.rollout.game import game_of
from agentgym.rollout.referee import scheduler_for
from agentgym.store import RunFolder, first_free, undo_folders
from agentgym.trainer.factory import trainer_class
from agentgym.trainer.tiny_policy import PATH as TINY_POLICY

if TYPE_CHECKING:
    from transformers import TrainerCallback

    from agentgym.trainer.config import AgentGRPOConfig
    from agentgym.trainer.grpo import AgentGRPOTrainer
    from agentgym.trainer.pipeline import Recipe

INTERRUPTED = 130


def train(settings: TrainConfig) -> int:
    """Train and leave a run folder; exit code 130 if it was interrupted."""
    settings.load_plugins()
    resolved = settings.resolved()
    folder = RunFolder(resolved.folder)
    checkpoint = folder.newest_checkpoint(quiet=rank() > 0) if settings.resume else None
    if checkpoint is None:
        folder.refuse_unusable()
    game = game_of(resolved.env, resolved.env_args)
    rubric = rubric_of(resolved, game)
    settle_sandbox(resolved, (*game.sandboxes, *rubric.sandbox_specs()), quiet=rank() > 0)
    language = load_language(
        resolved.model or str(TINY_POLICY),
        dialect_name=resolved.dialect,
        template_args=resolved.template_args,
        on_rewrite=resolved.on_history_rewrite,
        today=resolved.template_date,
    )
    scheduler_for(resolved.scheduler, game, language.renderer)
    make_engine = engine_maker(resolved, language, max_tokens=resolved.max_tokens)
    is_main = rank() == 0
    console = Console(quiet=not is_main)
    with main_leaves_first():
        with progress_for(console, resolved.title) as progress:
            setting = _Setting(resolved, checkpoint, language, make_engine)
            outcome = _run(setting, progress)
        if is_main:
            _print_outcome(console, outcome.folder)
    return INTERRUPTED if outcome.interrupted else 0


class _Outcome(NamedTuple):
    folder: RunFolder
    interrupted: bool


class _Setting(NamedTuple):
    """What is known before anything is loaded."""

    settings: TrainConfig
    checkpoint: Path | None
    language: Language
    make_engine: MakeEngine


def _run(known: _Setting, progress: Progress) -> _Outcome:
    """Load, train."""
    progress.phase("loading")
    args = _trainer_args(known.settings)
    trainer_class(known.settings.trainer)
    with closing(known.make_engine) as engine:
        return _run_with(engine, args, known, progress)


def _run_with(
    engine: Engine | None, args: "AgentGRPOConfig", known: _Setting, progress: Progress
) -> _Outcome:
    from agentgym.commands.training import TrainingRun
    from agentgym.trainer.run_callbacks import FollowRun, StopOnRequest

    settings = known.settings
    stop = StopRequest(lambda: progress.phase("stopping soon (Ctrl-C again: at once)"))
    with _own_folder(settings) as folder:
        if settings.given_folder is None:
            settings = settings.model_copy(update={"name": folder.path.name})
        args.output_dir = str(folder.checkpoints)
        stopper = StopOnRequest(stop)
        recipe = _recipe(settings, args, known.language, (FollowRun(folder, progress), stopper))
        trainer = _build(replace(recipe, engine=engine))
        stopper.ranks = trainer.ranks
    run = TrainingRun(settings, folder, trainer, progress)
    if run.is_main:
        folder.create(to_yaml(settings))
    trainer.accelerator.wait_for_everyone()
    try:
        run.run(known.checkpoint, stop)
    except KeyboardInterrupt:
        return _Outcome(folder, interrupted=True)
    return _Outcome(folder, interrupted=False)


@contextmanager
def _own_folder(settings: TrainConfig) -> Iterator[RunFolder]:
    """The run's folder, on every process; what was made of it is removed if the block fails.

    One whose name was left open is made at once, so that no other run can take the name.
    """
    with ExitStack() as undo:
        path = settings.given_folder
        if path is None and rank() == 0:
            path = undo.enter_context(first_free(free_folders(settings.env)))
        folder = RunFolder(Path(from_main(str(path))))
        undo.enter_context(undo_folders(folder.checkpoints))
        yield folder


def _trainer_args(settings: TrainConfig) -> "AgentGRPOConfig":
    """Settings of the trainer, with a place yet to be found; forms the group of processes."""
    import torch
    from transformers.utils import logging

    from agentgym.trainer.pipeline import make_args

    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    values = trainer_settings(settings, settings.folder / "checkpoints", world_size())
    values.setdefault("use_cpu", not torch.cuda.is_available())
    args = make_args(values)
    if args.world_size != world_size():
        raise ConfigError(
            f"{world_size()} processes were started, but they do not form one group of this trainer"
        )
    return args


def _build(recipe: "Recipe") -> "AgentGRPOTrainer":
    from transformers import PrinterCallback

    from agentgym.trainer.pipeline import build

    trainer = build(recipe)
    trainer.remove_callback(PrinterCallback)
    return trainer


def _recipe(
    settings: TrainConfig,
    args: "AgentGRPOConfig",
    language: Language,
    callbacks: Sequence["TrainerCallback"],
) -> "Recipe":
    from agentgym.trainer.pipeline import Recipe

    return Recipe(
        model=language.name,
        args=args,
        env=settings.env,
        env_kwargs=settings.env_args,
        rewards=settings.rewards,
        scheduler=settings.scheduler,
        trainer=settings.trainer,
        tokenizer=language.tokenizer,
        renderer=language.renderer,
        callbacks=callbacks,
    )


def _print_outcome(console: Console, folder: RunFolder) -> None:
    summary = folder.read_summary()
    if summary["eval_tasks"]:
        console.print(_table(summary))
    time = duration(summary["train_seconds"])
    lines = [f"{summary['num_steps']} steps in {time}; run folder: {folder.path}"]
    if _every_turn_was_constrained(folder):
        lines.append(
            "nothing was learned: every turn was constrained, and constrained turns are not "
            "trained; leave the env at least one free turn"
        )
    elif _nothing_to_learn_from(folder):
        lines.append(
            "nothing was learned: in every group all rewards were equal, so no group had a "
            "gradient; look at `agentgym rollout` with the same env and model"
        )
    if summary["interrupted"]:
        lines.append(_how_to_go_on(folder))
    console.print(*lines, sep="\n", highlight=False, soft_wrap=True)


def _how_to_go_on(folder: RunFolder) -> str:
    try:
        folder.newest_checkpoint()
    except ConfigError:
        return "no step was kept: begin a new run"
    return f"go on with: agentgym train --resume --run-dir {shlex.quote(str(folder.path))}"


def _every_turn_was_constrained(folder: RunFolder) -> bool:
    shares = [row.get("completions/constrained_fraction") for row in folder.read_metrics()]
    return bool(shares) and all(share == 1 for share in shares)


def _nothing_to_learn_from(folder: RunFolder) -> bool:
    shares = [row.get("frac_reward_zero_std") for row in folder.read_metrics()]
    return bool(shares) and all(share == 1 for share in shares)


def _table(summary: dict[str, Any]) -> Table:
    """Held-out rewards before and after, with the half width of their 95 % intervals."""
    title = f"mean reward on {summary['eval_tasks']} held-out tasks"
    table = Table(title=title, box=None, title_justify="left", pad_edge=False)
    for column in ("", "before", "after"):
        table.add_column(column, justify="left" if not column else "right")
    for key, label in (("reward", "sampled as in training"), ("greedy", "greedy")):
        table.add_row(
            label, *(_cell(summary, f"eval_{key}_{when}") for when in ("before", "after"))
        )
    return table


def _cell(summary: dict[str, Any], key: str) -> str:
    value, margin = summary.get(key), summary.get(f"{key}_margin")
    if value is None:
        return "-"
    return f"{value:.3f}" if margin is None else f"{value:.3f} ±{margin:.3f}"


COMMAND = Command(TrainConfig, train)
