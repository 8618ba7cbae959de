"""A training run from the first evaluation to the last, and what is left of it on every way out."""

import shlex
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

from agentgym.checkpoints import step_of
from agentgym.commands.stopping import StopRequest
from agentgym.commands.train_config import TrainConfig
from agentgym.errors import (
    AgentGymError,
    ConfigError,
    EpisodeError,
    OutageError,
    WrongServerError,
)
from agentgym.plotting import RewardCurve, reward_curve_png
from agentgym.progress import Progress
from agentgym.store import RunFolder, StorageError, write_atomically
from agentgym.tools.sandbox.shared import shared_report
from agentgym.trainer.grpo import AgentGRPOTrainer
from agentgym.trainer.ranks import ProcessGoneError

Evaluation = dict[str, Mapping[str, float]]
"""Figures of held-out tasks by how they were sampled: `sampled` and `greedy`."""
_NOT_THE_RUNS = (EpisodeError, OutageError, WrongServerError)
"""Errors after which the run can go on as it is, once their cause is over."""
_TORCH_WRITER = ("inline_container", "PytorchStreamWriter")
"""In the messages of `torch.save` when a write fails."""


class TrainingRun:
    """Evaluates, trains, evaluates; keeps the folder's summary and plot up to date.

    Args:
        settings: resolved.
        folder: exists already.
        trainer: ready to start.
        progress: told what is being done.
    """

    def __init__(
        self,
        settings: TrainConfig,
        folder: RunFolder,
        trainer: AgentGRPOTrainer,
        progress: Progress,
    ) -> None:
        self.settings = settings
        self.folder = folder
        self.trainer = trainer
        self.progress = progress
        self.summary: dict[str, Any] = {
            "env": settings.env,
            "model": settings.model or "embedded tiny policy",
            "version": version("agentgym-rl"),
            "seed": settings.seed,
            "num_steps": 0,
            "train_seconds": 0.0,
            "eval_tasks": settings.eval_tasks,
            "interrupted": False,
            "finished": False,
            "ended": False,
        }
        self._saved_step = 0

    def run(self, checkpoint: Path | None, stop: StopRequest) -> None:
        """The whole run; on every way out the folder says how far it came.

        Args:
            checkpoint: to go on from.
            stop: asked for by the user.
        """
        try:
            with stop, self.trainer.stage.session():
                self._evaluate_before(checkpoint)
                self._train(checkpoint, stop)
                self._evaluate("after")
            self.summary["finished"] = True
        except KeyboardInterrupt:
            self.summary["interrupted"] = True
            raise
        except AgentGymError as error:
            self.summary["error"] = str(error)
            self._say_how_to_go_on(error)
            raise
        finally:
            self.summary["ended"] = True
            with suppress(*(() if self.summary["finished"] else (StorageError,))):
                self._write_down()

    def _evaluate_before(self, checkpoint: Path | None) -> None:
        known = self.folder.read_summary() if checkpoint is not None else {}
        earlier = {key: value for key, value in known.items() if "_before" in key}
        if earlier:
            self.summary |= earlier
        else:
            self._evaluate("before")

    def _evaluate(self, when: str) -> None:
        """Held-out tasks, sampled as in training and greedily."""
        if not self.settings.eval_tasks:
            return
        for how, temperature in (("reward", self.settings.temperature), ("greedy", 0.0)):
            label = "greedily" if temperature == 0 else "sampled"
            self.progress.phase(f"evaluating {when} training, {label}")
            figures = self.trainer.evaluate_env(
                num_tasks=self.settings.eval_tasks,
                temperature=temperature,
                name=f"eval-{when}-{how}",
            )
            self.summary[f"eval_{how}_{when}"] = figures.get("reward")
            if "reward_low" in figures:
                half = (figures["reward_high"] - figures["reward_low"]) / 2
                self.summary[f"eval_{how}_{when}_margin"] = half
        self._write_summary()

    def _train(self, checkpoint: Path | None, stop: StopRequest) -> None:
        if checkpoint is not None and self.is_main:
            self.folder.rewind(step_of(checkpoint))
        earlier = sum(row.get("step_seconds", 0.0) for row in self.folder.read_metrics())
        self.progress.phase("training")
        started = time.perf_counter()
        try:
            with stop.held_back(), self._guarded_checkpoints():
                self._go_round(checkpoint)
        finally:
            self.summary["num_steps"] = self.trainer.state.global_step
            self.summary["train_seconds"] = earlier + time.perf_counter() - started

    def _go_round(self, checkpoint: Path | None) -> None:
        """Hugging Face's loop; what was learned is kept when what it needs is gone."""
        self._saved_step = step_of(checkpoint) if checkpoint is not None else 0
        trainer = self.trainer
        try:
            trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
        except ProcessGoneError:
            raise  # all processes make a checkpoint together
        except _NOT_THE_RUNS:
            step = trainer.state.global_step
            if step != self._saved_step and step % trainer.args.steps_per_window == 0:
                trainer._save_checkpoint(trainer.model, trial=None)
            raise

    def _say_how_to_go_on(self, error: AgentGymError) -> None:
        """Add to an error that no change of the run mends what to do once its cause is over."""
        is_new = self.trainer.state.global_step == 0
        is_of_disk = isinstance(error, StorageError) and not is_new
        if not self.is_main or not (is_of_disk or isinstance(error, _NOT_THE_RUNS)):
            return
        try:
            step = step_of(self.folder.newest_checkpoint(quiet=True))
        except ConfigError:
            same = "nothing was trained yet: begin again with the same command"
            error.add_note(same if is_new else "no step was kept: begin a new run")
        else:
            command = f"agentgym train --resume --run-dir {shlex.quote(str(self.folder.path))}"
            error.add_note(f"step {step} is kept, go on with: {command}")

    @contextmanager
    def _guarded_checkpoints(self) -> Iterator[None]:
        """Within the block, a checkpoint that cannot be written is a `StorageError`."""
        save = self.trainer._save_checkpoint

        def guarded(*args: Any, **kwargs: Any) -> None:
            with storing_checkpoint(self.folder):
                save(*args, **kwargs)
            self._saved_step = self.trainer.state.global_step

        self.trainer._save_checkpoint = guarded  # type: ignore[method-assign]
        try:
            yield
        finally:
            self.trainer._save_checkpoint = save  # type: ignore[method-assign]

    @property
    def is_main(self) -> bool:
        """Whether this process writes what the run has one of."""
        return self.trainer.ranks.index == 0

    def _write_summary(self) -> None:
        if self.is_main:
            sandbox = shared_report()
            self.folder.write_summary(self.summary | ({"sandbox": sandbox} if sandbox else {}))

    def _write_down(self) -> None:
        self._write_summary()
        if not self.is_main:
            return
        rows = [row for row in self.folder.read_metrics() if row.get("reward") is not None]
        curve = RewardCurve(
            title=self.settings.title,
            steps=[row["step"] for row in rows],
            rewards=[row["reward"] for row in rows],
            before=self.summary.get("eval_reward_before"),
            after=self.summary.get("eval_reward_after"),
        )
        write_atomically(self.folder.plot, reward_curve_png(curve))


@contextmanager
def storing_checkpoint(folder: RunFolder) -> Iterator[None]:
    """Turn what the libraries raise when the disk is full into one line, and make room again.

    Raises:
        StorageError: a checkpoint could not be written; what there is of it was removed.
    """
    from safetensors import SafetensorError

    try:
        yield
    except (OSError, SafetensorError) as error:
        reason = str(error).splitlines()[0]
        cause: Exception = error
    except RuntimeError as error:
        if not any(word in str(error) for word in _TORCH_WRITER):
            raise
        reason, cause = "torch could not write a file; is the disk full?", error
    else:
        return
    folder.drop_incomplete_checkpoints()
    raise StorageError(f"cannot write to {str(folder.checkpoints)!r}: {reason}") from cause
