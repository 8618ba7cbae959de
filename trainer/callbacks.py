"""Hooks beside those of Transformers: what was played, and how it went."""

from collections.abc import Sequence

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from agentgym.trajectory import RolloutOutput


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
