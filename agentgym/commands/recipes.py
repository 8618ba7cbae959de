"""From the settings of a command to those of the parts that do the work."""

from pathlib import Path
from typing import Any

from agentgym.commands.sections import EnvSection
from agentgym.commands.train_config import TrainConfig
from agentgym.config import flag_of
from agentgym.errors import ConfigError
from agentgym.registry import REWARDS
from agentgym.rewards.rubric import Rubric
from agentgym.rollout.game import Game, weights_by_name

OWN_FIELDS = {
    "max_steps": "steps",
    "num_generations": "group_size",
    "learning_rate": "learning_rate",
    "temperature": "temperature",
    "beta": "beta",
    "loss_type": "loss_type",
    "advantage_estimator": "advantage_estimator",
    "scale_rewards": "scale_rewards",
    "curriculum": "curriculum",
    "reward_weights": "reward_weights",
    "max_turns": "max_turns",
    "max_completion_length": "max_tokens",
    "concurrency": "concurrency",
    "staleness": "staleness",
    "probe_every": "probe_every",
    "num_eval_tasks": "eval_tasks",
    "save_steps": "save_steps",
    "seed": "seed",
    "output_dir": "run_dir",
}
"""Trainer settings that have a flag of their own, by that field."""
BATCH = ("per_device_train_batch_size", "steps_per_generation", "generation_batch_size")
"""Trainer settings that say how much is played at once, in place of `num_tasks`."""
DEFAULT_TASKS = 8


def rubric_of(settings: EnvSection, game: Game) -> Rubric:
    """The reward functions of a run, and the weight of every reward.

    Raises:
        NotRegisteredError: no such reward function.
        ConfigError: a weight is for no reward.
    """
    functions = {name: REWARDS.get(name) for name in settings.rewards}
    weights = weights_by_name(game.reward_weights, list(functions), settings.reward_weights)
    return Rubric(functions, weights)


def trainer_settings(settings: TrainConfig, checkpoints: Path, num_ranks: int) -> dict[str, Any]:
    """Fields of `AgentGRPOConfig`, `trainer_args` included.

    Args:
        settings: resolved.
        checkpoints: folder for them.
        num_ranks: processes of the run.

    Raises:
        ConfigError: a trainer argument that has a flag of its own, or tasks that do not divide.
    """
    given = settings.trainer_args
    for name in given.keys() & OWN_FIELDS.keys():
        raise ConfigError(
            f"--trainer-args {name!r}: give it as {flag_of(OWN_FIELDS[name])}, which is the same"
        )
    own = {name: settings.model_dump()[field] for name, field in OWN_FIELDS.items()}
    own |= {"output_dir": str(checkpoints), "num_eval_tasks": settings.eval_tasks or 1}
    own["engine_timeout_s"] = settings.sampling_timeout_s
    own["episode_timeout_s"] = settings.episode_timeout_s
    return {**_FIXED, **own, **_batch(settings, num_ranks), **given}


_FIXED: dict[str, Any] = {
    "lr_scheduler_type": "constant",
    "adam_beta1": 0.9,
    "adam_beta2": 0.99,
    "weight_decay": 0.0,
    "max_grad_norm": 1.0,
    "epsilon": 0.2,
    "epsilon_high": 0.28,
    "logging_steps": 1,
    "save_strategy": "steps",
    "save_total_limit": 2,
    "disable_tqdm": True,
    "report_to": "none",
}


def _batch(settings: TrainConfig, num_ranks: int) -> dict[str, Any]:
    others = sorted(settings.trainer_args.keys() & set(BATCH))
    if others and settings.num_tasks is not None:
        raise ConfigError(
            f"--num-tasks {settings.num_tasks} and --trainer-args {others[0]!r} both say how much "
            "is played at once: give one"
        )
    if others:
        return {}
    num_tasks = settings.num_tasks or DEFAULT_TASKS
    if num_tasks % num_ranks:
        raise ConfigError(
            f"--num-tasks {num_tasks} cannot be shared out evenly to {num_ranks} processes"
        )
    return {"per_device_train_batch_size": num_tasks * settings.group_size // num_ranks}
