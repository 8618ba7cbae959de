"""What the numbers among the trainer's settings may be.

A dataclass takes anything, and a limit of -1 or a rate of NaN would only be noticed rollouts later,
where nobody can tell the setting from its effect; so all of them are looked at first of all.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from agentgym.errors import ConfigError
from agentgym.rollout.player import MAX_CONCURRENCY


class Range(NamedTuple):
    """The numbers from `low` to `high`; NaN is in none."""

    low: float
    high: float = math.inf
    whole: bool = False
    """No fractions."""
    above: bool = False
    """Without `low` itself."""
    endless: bool = False
    """Infinity too."""

    def holds(self, value: object) -> bool:
        """Whether it is one of them."""
        if isinstance(value, bool) or not isinstance(value, int if self.whole else int | float):
            return False
        if value == math.inf:
            return self.endless
        return self.low < value <= self.high if self.above else self.low <= value <= self.high

    def complaint(self) -> str:
        """What is wrong with a number outside."""
        kind = "a whole number" if self.whole else "a number" if self.endless else "a finite number"
        if self.high < math.inf:
            return f"is not in {self.low}..{self.high} ({kind})"
        return f"must be {'above' if self.above else 'at least'} {self.low} ({kind})"


_COUNT = Range(1, whole=True)
_LIMIT = Range(0, whole=True)
_SECONDS = Range(0, above=True, endless=True)
_SIZE = Range(0)

RANGES: dict[str, Range] = {
    **dict.fromkeys(
        (
            "per_device_train_batch_size",
            "gradient_accumulation_steps",
            "steps_per_generation",
            "generation_batch_size",
            "num_generations_eval",
            "max_completion_length",
            "token_budget",
            "num_iterations",
            "num_eval_tasks",
            "max_turns",
            "max_turn_tokens",
            "max_attempts",
        ),
        _COUNT,
    ),
    "max_total_tokens": Range(2, whole=True),
    "max_tool_calls": _LIMIT,
    "max_parse_errors": _LIMIT,
    "staleness": _LIMIT,
    "probe_every": _LIMIT,
    "sync_timeout_s": Range(0, above=True),
    "probe_max_abs": Range(0, above=True),
    "probe_mean_abs": Range(0, above=True),
    "concurrency": Range(1, MAX_CONCURRENCY, whole=True),
    "seed": Range(0, 2**32 - 1, whole=True),
    "episode_timeout_s": _SECONDS,
    "env_timeout_s": _SECONDS,
    "engine_timeout_s": _SECONDS,
    "reward_timeout_s": _SECONDS,
    "max_failed_fraction": Range(0, 1),
    "eval_temperature": _SIZE,
    "learning_rate": _SIZE,
    "num_train_epochs": _SIZE,
    "weight_decay": _SIZE,
    "adam_beta1": Range(0, 0.999999),
    "adam_beta2": Range(0, 0.999999),
    "adam_epsilon": _SIZE,
    "max_grad_norm": Range(0, endless=True),
    "beta": _SIZE,
    "epsilon": _SIZE,
    "epsilon_high": Range(0, endless=True),
    "delta": Range(0, above=True),
    "rollout_correction_max": Range(1),
    "rollout_correction_min": Range(0, 1),
    "off_policy_mask_threshold": _SIZE,
}
"""By field; `None` stands for a default and passes."""


def refuse_out_of_range(values: Mapping[str, Any]) -> None:
    """Raise a `ConfigError` that names the first setting outside its range, with the value."""
    for name, allowed in RANGES.items():
        value = values[name]
        if value is not None and not allowed.holds(value):
            raise ConfigError(f"{name}={value!r} {allowed.complaint()}")
