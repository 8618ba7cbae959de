"""What a run keeps and shows while Hugging Face's loop goes round.

Each optimizer step leaves a line of metrics and its window's trajectories in the run folder before
the next one begins, so that an interrupted run is complete up to there.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from transformers import TrainerControl, TrainerState, TrainingArguments

from agentgym.progress import Progress, StepReport
from agentgym.store import RunFolder, step_name
from agentgym.trainer.callbacks import AgentCallback
from agentgym.trainer.config import AgentGRPOConfig
from agentgym.trainer.ranks import Ranks
from agentgym.trajectory import RolloutOutput

_PHASES = {"rollout": "sample", "logprob": "logprob", "old_logprob": "logprob", "update": "update"}


class FollowRun(AgentCallback):
    """Keeps metrics and trajectories in a run folder and shows every optimizer step.

    Every process writes its own trajectories; the first one does the rest.
    """

    def __init__(self, folder: RunFolder, progress: Progress) -> None:
        self._folder = folder
        self._progress = progress
        self._started = time.perf_counter()

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Start the clock."""
        self._started = time.perf_counter()

    def on_trajectory(self, output: RolloutOutput) -> None:
        """Show that something is going on."""
        self._progress.trajectory()

    def on_window(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        *,
        outputs: Sequence[RolloutOutput],
        advantages: Sequence[float],
    ) -> None:
        """Keep the trajectories of a window under the first step they are used in."""
        self._keep(step_name(state.global_step + 1), args, outputs)

    def on_evaluation(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        *,
        outputs: Sequence[RolloutOutput],
        name: str,
    ) -> None:
        """Keep the trajectories of an evaluation."""
        self._keep(name, args, outputs)

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Keep and show a step's metrics; the loop's last summary is none."""
        if not state.is_world_process_zero or not logs or "train_runtime" in logs:
            return
        row = {"step": state.global_step, **logs}
        if "step_time" in logs:
            row["step_seconds"] = time.perf_counter() - self._started
        self._folder.append_metrics(row)
        if "step_time" in logs:
            self._progress.step(step_report(row, state.max_steps))

    def _keep(self, name: str, args: TrainingArguments, outputs: Sequence[RolloutOutput]) -> None:
        rank = f".rank{args.process_index}" if args.world_size > 1 else ""
        self._folder.write_trajectories(name + rank, outputs)


class Stop(Protocol):
    """A wish to stop; any process may have it."""

    is_asked: bool

    def announce(self) -> None:
        """Say so, once."""
        ...


class StopOnRequest(AgentCallback):
    """Ends the loop after the window in which a stop was asked for, with a checkpoint.

    Args:
        stop: this process's wish; set on all processes if one has it.
    """

    def __init__(self, stop: Stop) -> None:
        self._stop = stop
        self.ranks: Ranks | None = None
        """To agree with the other processes; set once the trainer is there."""

    def on_trajectory(self, output: RolloutOutput) -> None:
        """Say that a stop was asked for."""
        self._stop.announce()

    def on_substep_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Say that a stop was asked for."""
        self._stop.announce()

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl:
        """Ask for a checkpoint and the end, once the window is used up: none is in a checkpoint."""
        self._stop.announce()
        assert isinstance(args, AgentGRPOConfig)
        if state.global_step % args.steps_per_window:
            return control
        if self.ranks is not None:
            self._stop.is_asked = any(self.ranks.gather(self._stop.is_asked))
        if self._stop.is_asked:
            control.should_save = control.should_training_stop = True
        return control


def step_report(row: Mapping[str, Any], num_steps: int) -> StepReport:
    """What is shown of a row of metrics."""
    split: dict[str, float] = {}
    for name, phase in _PHASES.items():
        split[phase] = split.get(phase, 0.0) + row.get(f"time/{name}", 0.0)
    return StepReport(
        step=row["step"],
        num_steps=num_steps,
        reward=row.get("reward"),
        length=row.get("completions/mean_length"),
        turns=row.get("turns/mean"),
        seconds=row["step_seconds"],
        split=split,
    )
