"""What metrics need of a trajectory: small, and made to be sent between processes."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from agentgym.rewards.rubric import ERRORS
from agentgym.trainer.window import TRUNCATED
from agentgym.trajectory import RolloutOutput, StopReason


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """The figures of one trajectory."""

    group: str
    reward: float | None
    """`None` = unscored."""
    rewards: Mapping[str, float | None]
    stop: StopReason
    num_turns: int
    num_sampled: int
    """Tokens the policy sampled: what TRL calls the completion's length."""
    num_tokens: int
    """All tokens, over all traces: prompt, sampled and observed."""
    fingerprint: str
    """Equal for trajectories with the same sampled tokens."""
    task: str = ""
    """Its id."""
    start: str = ""
    """Hash of the initial state: equal within a group."""
    num_tool_calls: int = 0
    tool_failures: Mapping[str, int] = field(default_factory=dict)
    """By kind."""
    reward_errors: tuple[str, ...] = ()
    """Names of the reward functions that failed."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """By phase."""

    @property
    def is_truncated(self) -> bool:
        return self.stop in TRUNCATED

    @classmethod
    def of(cls, output: RolloutOutput) -> Self:
        """The figures of a trajectory."""
        infos = output.rollout_infos
        sampled = [segment.ids for segment in output.sampled]
        return cls(
            group=output.group_id,
            task=output.task_id,
            reward=output.reward if output.is_scored else None,
            rewards=output.rewards,
            stop=output.stop_reason,
            num_turns=output.num_turns,
            num_sampled=sum(map(len, sampled)),
            num_tokens=sum(len(segment.ids) for trace in output.traces for segment in trace),
            fingerprint=hashlib.sha256(repr(sampled).encode()).hexdigest()[:16],
            start=infos.get("initial_state_hash", ""),
            num_tool_calls=infos.get("num_tool_calls", 0),
            tool_failures=infos.get("tool_failures", {}),
            reward_errors=tuple(infos.get(ERRORS, {})),
            seconds=output.timings,
        )
