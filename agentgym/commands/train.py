"""`agentgym train`: checks first, from cheap to dear; then the weights; then the run folder.

A run that is refused leaves nothing on disk.
"""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from agentgym.commands import Command
from agentgym.commands.language import Language, load_language
from agentgym.commands.processes import main_leaves_first, rank, world_size
from agentgym.commands.recipes import rubric_of, trainer_settings
from agentgym.commands.stopping import StopRequest
from agentgym.commands.train_config import TrainConfig
from agentgym.config import to_yaml
from agentgym.errors import ConfigError
from agentgym.progress import Progress, duration, progress_for
from agentgym.store import RunFolder, undo_folders
from agentgym.trainer.game import game_of
from agentgym.trainer.tiny_policy import PATH as TINY_POLICY

if TYPE_CHECKING:
    from agentgym.trainer.grpo import AgentGRPOTrainer

INTERRUPTED = 130


def train(settings: TrainConfig) -> int:
    """Train and leave a run folder; exit code 130 if it was interrupted."""
    settings.load_plugins()
    resolved = settings.resolved()
    folder = RunFolder(resolved.folder)
    checkpoint = folder.newest_checkpoint() if settings.resume else None
    if checkpoint is None:
        folder.refuse_unusable()
    game = game_of(resolved.env, resolved.env_args)
    rubric_of(resolved, game)
    language = load_language(
        resolved.model or str(TINY_POLICY),
        dialect_name=resolved.dialect,
        template_args=resolved.template_args,
        keep_history=resolved.on_history_rewrite == "keep",
    )
    is_main = rank() == 0
    console = Console(quiet=not is_main)
    with main_leaves_first():
        with progress_for(console, resolved.title) as progress:
            interrupted = _run(resolved, folder, checkpoint, language=language, progress=progress)
        if is_main:
            _print_outcome(console, folder)
    return INTERRUPTED if interrupted else 0


def _run(
    settings: TrainConfig,
    folder: RunFolder,
    checkpoint: Path | None,
    *,
    language: Language,
    progress: Progress,
) -> bool:
    """Load, train; True if the user stopped it."""
    progress.phase("loading")
    from agentgym.commands.training import TrainingRun

    stop = StopRequest(lambda: progress.phase("stopping soon (Ctrl-C again: at once)"))
    with undo_folders(folder.checkpoints):
        trainer = _build(settings, folder, language, stop=stop, progress=progress)
    run = TrainingRun(settings, folder, trainer, progress)
    if run.is_main:
        folder.create(to_yaml(settings))
    trainer.accelerator.wait_for_everyone()
    try:
        run.run(checkpoint, stop)
    except KeyboardInterrupt:
        return True
    return False


def _build(
    settings: TrainConfig,
    folder: RunFolder,
    language: Language,
    *,
    stop: StopRequest,
    progress: Progress,
) -> "AgentGRPOTrainer":
    import torch
    from transformers import PrinterCallback
    from transformers.utils import logging

    from agentgym.trainer.pipeline import Recipe, build, make_args
    from agentgym.trainer.run_callbacks import FollowRun, StopOnRequest

    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    num_ranks = world_size()
    values = trainer_settings(settings, folder.checkpoints, num_ranks)
    values.setdefault("use_cpu", not torch.cuda.is_available())
    stopper = StopOnRequest(stop)
    trainer = build(
        Recipe(
            model=language.name,
            args=make_args(values),
            env=settings.env,
            env_kwargs=settings.env_args,
            rewards=settings.rewards,
            scheduler=settings.scheduler,
            trainer=settings.trainer,
            tokenizer=language.tokenizer,
            renderer=language.renderer,
            callbacks=[FollowRun(folder, progress), stopper],
        )
    )
    if trainer.ranks.count != num_ranks:
        raise ConfigError(
            f"{num_ranks} processes were started, but they do not form one group of this trainer"
        )
    trainer.remove_callback(PrinterCallback)
    stopper.ranks = trainer.ranks
    return trainer


def _print_outcome(console: Console, folder: RunFolder) -> None:
    summary = folder.read_summary()
    if summary["eval_tasks"]:
        console.print(_table(summary))
    time = duration(summary["train_seconds"])
    lines = [f"{summary['num_steps']} steps in {time}; run folder: {folder.path}"]
    if summary["interrupted"]:
        command = "agentgym train --resume --run-dir"
        lines.append(f"go on with: {command} {shlex.quote(str(folder.path))}")
    console.print(*lines, sep="\n", highlight=False, soft_wrap=True)


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
