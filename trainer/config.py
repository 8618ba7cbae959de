"""Settings of the trainer: TRL's, plus those of the rollout, minus what this trainer does not do.

Names, units and defaults stay TRL's wherever both have a setting, so that a TRL user can bring a
config along. A TRL setting that would be ignored here is refused, never dropped.
"""

import os
from dataclasses import dataclass
from typing import Literal

import torch
from trl.trainer.grpo_config import GRPOConfig

from agentgym.errors import ConfigError
from agentgym.registry import ADVANTAGES, LOSSES
from agentgym.rollout.game import refuse_bad_weights
from agentgym.trainer.advantages import Scale
from agentgym.trainer.batching import (
    refuse_part_windows,
    refuse_unconnected,
    refuse_uneven,
    settle_saving,
)
from agentgym.trainer.corrections import CorrectionMode, CorrectionSettings
from agentgym.trainer.losses import OWN_LOSSES, ImportanceLevel, LossSettings
from agentgym.trainer.ranges import Range, refuse_out_of_range
from agentgym.trainer.sync import ProbeSettings, SyncSettings
from agentgym.trainer.unsupported import refuse_unsupported
from agentgym.trainer.window import PlanSettings
from agentgym.trajectory import Budget


@dataclass
class AgentGRPOConfig(GRPOConfig):
    """Arguments of `AgentGRPOTrainer`.

    All batch sizes count trajectories, as in TRL. One window is what is played at once:
    `generation_batch_size` = `per_device_train_batch_size` x processes x `steps_per_generation`.
    It feeds `steps_per_generation / gradient_accumulation_steps` optimizer steps, `num_iterations`
    times over. How much is computed at once is `token_budget`'s business alone.

    Raises:
        ConfigError: settings that cannot work together, or that this trainer does not support.
    """

    _VALID_DICT_FIELDS = [*GRPOConfig._VALID_DICT_FIELDS, "reward_weights"]

    gradient_checkpointing: bool | None = None  # type: ignore[assignment]
    """Recompute activations in the backward pass to save memory."""
    bf16: bool | None = None  # type: ignore[assignment]
    """Mixed precision; by default where there is a GPU."""
    disable_dropout: bool = True
    """With dropout the trainer's log-probabilities are not the sampler's."""
    num_generations: int = 8
    """Trajectories of a group."""
    num_generations_eval: int = 1
    """Trajectories per held-out task."""
    max_completion_length: int = 512
    """Tokens sampled in a trajectory, over all turns."""
    use_bias_correction_kl: bool = False
    """Multiply the KL term by the ratio; TRL's default is True."""
    scale_rewards: Scale = "group"
    """What a centred reward is divided by."""
    importance_sampling_level: ImportanceLevel = "token"
    reward_weights: dict[str, float] | None = None  # type: ignore[assignment]
    """By name of the reward; else the env's own, else 1."""

    rollout_correction: CorrectionMode = "token_truncate"
    """How the loss allows for a sampler that differs from the trainer: see
    `agentgym.trainer.corrections`."""
    rollout_correction_max: float = 2.0
    """Largest ratio of trainer to sampler that counts in full."""
    rollout_correction_min: float | None = None
    """Smallest one; by default there is none."""

    advantage_estimator: str = "grpo"
    """A name in `agentgym.registry.ADVANTAGES`."""
    token_budget: int = 4096
    """Input tokens of one forward pass, padding included."""
    share_prompts: bool = True
    """Compute the prompt of a group once."""
    skip_zero_advantage: bool = True
    """No forward pass where the loss has no gradient: exact for losses proportional to the
    advantage, and off by itself where `beta` is not 0."""
    padding: bool = False
    """One trajectory per row, padded, instead of packed rows."""

    max_turns: int = 10
    """Turns of a trajectory."""
    max_turn_tokens: int | None = None
    """Tokens sampled in one turn."""
    max_total_tokens: int | None = None
    """Tokens of a trajectory, prompt and observations included."""
    max_tool_calls: int = 64
    """Tool calls of a trajectory."""
    max_parse_errors: int = 5
    """Turns with a malformed call; one more ends the trajectory."""
    episode_timeout_s: float = 600.0
    """Wall clock of a trajectory."""
    env_timeout_s: float = 120.0
    """Wall clock of one call of the env."""
    reward_timeout_s: float = 60.0
    """Wall clock of one call of a reward function."""
    concurrency: int = 256
    """Trajectories that one process plays at once."""
    engine_timeout_s: float = 300.0
    """Wall clock of one turn of the engine."""
    max_attempts: int = 2
    """How often a trajectory is played that the infrastructure failed."""
    max_failed_fraction: float = 0.5
    """Stop if more of a window's trajectories failed."""
    curriculum: bool = False
    """Draw the parts of a mixture by measured success (see `agentgym.rollout.curriculum`)."""

    staleness: int = 0
    """Windows that are played while one is trained on: every token was sampled at most so many
    windows of updates before it is used. Above 0, the engine needs weights of its own (a copy of
    the model, if no engine is handed in). Windows on their way are not in a checkpoint: a resumed
    run plays them anew, so only with 0 does it equal the uninterrupted one."""
    sync_every: Literal["window", "step"] = "window"
    """When an engine at work is given new weights: before every window, or before every optimizer
    step. Without `staleness` it is at work before windows only."""
    sync_kind: Literal["full", "lora"] = "full"
    """What it is given of a model with an adapter: all weights with the adapter merged, or the
    adapter alone."""
    sync_timeout_s: float = 600.0
    """Wall clock of giving an engine new weights."""
    probe_every: int = 50
    """Updates of an engine with weights of its own between two comparisons of its
    log-probabilities with the trainer's, the first one included; 0 = never."""
    probe_max_abs: float = 1e-3
    """Nats by which they may differ at any token, where both sides compute in float32."""
    probe_mean_abs: float = 0.1
    """Nats by which they may differ on average in a turn, where one side computes in half
    precision."""

    num_eval_tasks: int = 64
    """Held-out tasks of an evaluation."""
    eval_temperature: float | None = None
    """By default `temperature`; 0 is greedy."""

    def __post_init__(self) -> None:
        refuse_unsupported(self)
        self._check_values()
        launched = int(os.environ.get("WORLD_SIZE", "1"))
        refuse_uneven(self, launched)
        if self.bf16 is None:
            self.bf16 = not self.use_cpu and torch.cuda.is_available()
        if self.load_best_model_at_end and self.metric_for_best_model is None:
            self.metric_for_best_model = "reward"
        super().__post_init__()  # type: ignore[no-untyped-call]
        refuse_unconnected(self, launched)
        refuse_part_windows(self)
        settle_saving(self)

    @property
    def steps_per_window(self) -> int:
        """Optimizer steps that one window feeds, repetitions included."""
        return self.batches_per_window * self.num_iterations

    @property
    def batches_per_window(self) -> int:
        """Disjoint parts of a window, each the data of one optimizer step."""
        assert self.steps_per_generation is not None
        return self.steps_per_generation // self.gradient_accumulation_steps

    @property
    def groups_per_rank(self) -> int:
        """Groups that one process plays for a window."""
        assert self.generation_batch_size is not None
        world_size: int = self.world_size
        return self.generation_batch_size // world_size // self.num_generations

    @property
    def budget(self) -> Budget:
        """Limits of one trajectory."""
        return Budget(
            max_turns=self.max_turns,
            max_sampled_tokens=self.max_completion_length,
            max_turn_tokens=self.max_turn_tokens,
            max_total_tokens=self.max_total_tokens,
            max_tool_calls=self.max_tool_calls,
            max_seconds=self.episode_timeout_s,
            max_parse_errors=self.max_parse_errors,
        )

    @property
    def loss_settings(self) -> LossSettings:
        """What is optimised."""
        return LossSettings(
            loss_type=self.loss_type,
            importance_level=self.importance_sampling_level,
            epsilon_low=self.epsilon,
            epsilon_high=self.epsilon if self.epsilon_high is None else self.epsilon_high,
            beta=self.beta,
            max_completion_tokens=self.max_completion_length,
            delta=self.delta,
            use_bias_correction_kl=self.use_bias_correction_kl,
        )

    @property
    def sync_settings(self) -> SyncSettings:
        """How weights travel to an engine that has its own."""
        return SyncSettings(kind=self.sync_kind, timeout_s=self.sync_timeout_s)

    @property
    def probe_settings(self) -> ProbeSettings:
        """How it is proved that they arrived."""
        return ProbeSettings(
            every=self.probe_every, max_abs=self.probe_max_abs, mean_abs=self.probe_mean_abs
        )

    @property
    def correction_settings(self) -> CorrectionSettings:
        """How the loss allows for the sampler."""
        return CorrectionSettings(
            mode=self.rollout_correction,
            maximum=self.rollout_correction_max,
            minimum=self.rollout_correction_min,
            off_policy_threshold=self.off_policy_mask_threshold,
        )

    def plan_settings(self, *, padding: bool) -> PlanSettings:
        """How a window is computed; `padding` if the model cannot have packed rows."""
        return PlanSettings(
            num_parts=self.batches_per_window,
            num_iterations=self.num_iterations,
            token_budget=self.token_budget,
            share_prompts=self.share_prompts,
            padding=self.padding or padding,
            keep_whole=self.importance_sampling_level == "sequence"
            or self.correction_settings.needs_whole
            or self.loss_type not in OWN_LOSSES,
            mask_truncated=self.mask_truncated_completions,
            skip_zero_advantage=self.skip_zero_advantage and not self.beta,
        )

    def _check_values(self) -> None:
        LOSSES.get(self.loss_type)
        ADVANTAGES.get(self.advantage_estimator)
        refuse_out_of_range(vars(self))
        self._check_correction()
        refuse_bad_weights(self.reward_weights or {})
        self._check_staleness()
        if not Range(0, above=True).holds(self.temperature):
            raise ConfigError(
                f"temperature={self.temperature!r} must be above 0 and finite: a greedy group has "
                "no spread"
            )

    def _check_correction(self) -> None:
        """Its settings judge themselves when they are made; without it there are no bounds."""
        made, default = self.correction_settings, CorrectionSettings()
        bounds = (made.minimum, made.maximum)
        if made.mode == "none" and bounds != (default.minimum, default.maximum):
            raise ConfigError(
                f"rollout_correction='none' has no use for rollout_correction_min={made.minimum} "
                f"and rollout_correction_max={made.maximum}: leave them out, or choose a mode"
            )

    def _check_staleness(self) -> None:
        if self.staleness and self.curriculum:
            raise ConfigError(
                f"curriculum=True does not work with staleness={self.staleness}: what is drawn "
                "depends on the windows before, which would not be known yet; set one of them to "
                "its default"
            )
        if self.sync_every == "step" and not self.staleness:
            raise ConfigError(
                f"sync_every={self.sync_every!r} does not work with staleness=0: nothing is played "
                "between the optimizer steps of a window; set staleness=1 or leave it out"
            )
