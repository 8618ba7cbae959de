"""Counts of a config that must fit: whole groups on every process, whole windows in every run."""

import math
from typing import TYPE_CHECKING

from trl.trainer.grpo_config import GRPOConfig

from agentgym.errors import ConfigError

if TYPE_CHECKING:
    from agentgym.trainer.config import AgentGRPOConfig


def refuse_uneven(args: "AgentGRPOConfig", world_size: int) -> None:
    """Groups are whole on every rank, windows are whole optimizer steps."""
    accumulation = args.gradient_accumulation_steps
    per_rank, steps = args.per_device_train_batch_size, args.steps_per_generation
    if steps is None and args.generation_batch_size is not None:
        steps, rest = divmod(args.generation_batch_size, per_rank * world_size)
        if rest:
            raise ConfigError(
                f"generation_batch_size={args.generation_batch_size} is no multiple of "
                f"{per_rank * world_size} (per_device_train_batch_size x processes)"
            )
    steps = steps or accumulation
    if steps % accumulation:
        raise ConfigError(
            f"steps_per_generation={steps} is no multiple of "
            f"gradient_accumulation_steps={accumulation}: an optimizer step would need "
            "trajectories of two windows"
        )
    _check_groups(args.num_generations, per_rank * steps, world_size)


def _check_groups(size: int, per_rank: int, world_size: int) -> None:
    if size >= 2 and per_rank % size == 0:
        return
    valid = [n for n in range(2, per_rank + 1) if per_rank % n == 0]
    raise ConfigError(
        f"num_generations={size} does not divide the {per_rank} trajectories a process plays per "
        f"window ({per_rank * world_size} over {world_size} processes); valid: "
        f"{', '.join(map(str, valid)) or 'none, raise per_device_train_batch_size'}"
    )


def refuse_unconnected(args: "AgentGRPOConfig", launched: int) -> None:
    """Raise a `ConfigError` if processes were started that know nothing of each other."""
    if args.world_size < launched:
        raise ConfigError(
            f"WORLD_SIZE={launched}, but this is {args.world_size} process that knows of no "
            "other, and would train on its own: set use_cpu=True to train on several CPUs"
        )


def refuse_part_windows(args: "AgentGRPOConfig") -> None:
    """A run is whole windows: every trajectory is used `num_iterations` times."""
    every = args.steps_per_window
    rest = args.max_steps % every
    if args.max_steps <= 0 or not rest:
        return
    below = args.max_steps - rest
    nearest = [steps for steps in (below, below + every) if steps]
    raise ConfigError(
        f"max_steps={args.max_steps} is no multiple of {every}, the optimizer steps of one "
        f"window: take {' or '.join(map(str, nearest))}"
    )


def settle_saving(args: "AgentGRPOConfig") -> None:
    """Checkpoints lie between windows: TRL's default is rounded up, another number refused."""
    every = args.steps_per_window
    if args.save_strategy == "steps" and args.save_steps == GRPOConfig.save_steps:
        args.save_steps = math.ceil(args.save_steps / every) * every
    refuse_saving_within(args, max(args.max_steps, 0))


def refuse_saving_within(args: "AgentGRPOConfig", num_steps: int) -> None:
    """Raise a `ConfigError` if a checkpoint would lie inside a window, which is no part of it.

    Args:
        args: once they are settled.
        num_steps: of the run, where settings are a share of it; 0 if it is not known.
    """
    if args.save_strategy == "steps":
        name, steps = "save_steps", args.save_steps
    elif args.save_strategy == "best" and args.eval_strategy == "steps":
        name, steps = "eval_steps", args.eval_steps or 0
    else:
        return
    count = steps if steps >= 1 else math.ceil(num_steps * steps)
    if count % args.steps_per_window:
        raise ConfigError(
            f"{name}={steps} is no multiple of {args.steps_per_window}, the optimizer steps of "
            "one window: such a checkpoint could not be resumed exactly"
        )
