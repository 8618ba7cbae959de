"""What metrics need of a trajectory: small, and made to be sent between processes."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from agentgym.rewards.rubric import ERRORS
from agentgym.tokens import flat_ids
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
    num_constrained: int = 0
    """Those of them that a constraint forced into a form, so that they are not trained."""
    num_tokens: int
    """Prompt, sampled and observed; what a trace shares with the one before it counts once."""
    fingerprint: str
    """Equal for trajectories with the same sampled tokens."""
    task: str = ""
    """Its id."""
    start: str = ""
    """Hash of the initial state: equal within a group."""
    num_tool_calls: int = 0
    tool_failures: Mapping[str, int] = field(default_factory=dict)
    """By kind."""
    reward_errors: Mapping[str, str] = field(default_factory=dict)
    """What the reward functions that failed say, by name."""
    num_attempts: int = 1
    """Those that the infrastructure failed, and this one."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """By phase."""

    @property
    def is_truncated(self) -> bool:
        return self.stop in TRUNCATED

    @classmethod
    def of(cls, output: RolloutOutput) -> Self:
        """The figures of a trajectory."""
        infos = output.rollout_infos
        spoken = output.spoken
        sampled = [segment.ids for segment in spoken]
        return cls(
            group=output.group_id,
            task=output.task_id,
            reward=output.reward if output.is_scored else None,
            rewards=output.rewards,
            stop=output.stop_reason,
            num_turns=output.num_turns,
            num_sampled=sum(map(len, sampled)),
            num_constrained=sum(len(s.ids) for s in spoken if s.constrained),
            num_tokens=_num_tokens(output),
            fingerprint=hashlib.sha256(repr(sampled).encode()).hexdigest()[:16],
            start=infos.get("initial_state_hash", ""),
            num_tool_calls=infos.get("num_tool_calls", 0),
            tool_failures=infos.get("tool_failures", {}),
            num_attempts=1 + len(infos.get("failed_attempts", ())),
            reward_errors=infos.get(ERRORS, {}),
            seconds=output.timings,
        )


def _num_tokens(output: RolloutOutput) -> int:
    count = 0
    before: list[int] = []
    for ids in map(flat_ids, output.traces):
        shared = next(
            (i for i, (one, other) in enumerate(zip(before, ids, strict=False)) if one != other),
            min(len(before), len(ids)),
        )
        count += len(ids) - shared
        before = ids
    return count
