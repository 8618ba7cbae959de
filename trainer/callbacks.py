"""Hooks beside those of Transformers: what was played, and how it went."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from agentgym.rollout.curriculum import Curriculum
from agentgym.trajectory import RolloutOutput


class KeepCurriculum(TrainerCallback):
    """Puts the success rates into every checkpoint."""

    def __init__(self, curriculum: Curriculum) -> None:
        self._curriculum = curriculum

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if state.is_world_process_zero:
            folder = Path(args.output_dir or ".") / f"checkpoint-{state.global_step}"
            self._curriculum.save(folder)


class AgentCallback(TrainerCallback):
    """A `TrainerCallback` that is also told about trajectories; override what you need.

    Every process is told about its own trajectories.
    """

    def on_trajectory(self, output: RolloutOutput) -> None:
        """One has ended; called from the rollout's thread, so it must be quick."""

    def on_window(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        *,
        outputs: Sequence[RolloutOutput],
        advantages: Sequence[float],
    ) -> None:
        """A window is scored and about to be trained on, from step `state.global_step` + 1 on."""

    def on_evaluation(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        *,
        outputs: Sequence[RolloutOutput],
        name: str,
    ) -> None:
        """Held-out tasks were played; `name` says which evaluation."""
