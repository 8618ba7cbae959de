"""Everything one trajectory knows while it is played."""

from dataclasses import dataclass, field
from typing import Any

from agentgym.constraint import Constraint
from agentgym.messages import Message, ToolResult
from agentgym.tokens import Segment, TokenTrace
from agentgym.tools.base import Tool
from agentgym.trajectory import Budget, RolloutRequest, Turn


@dataclass(slots=True)
class Trajectory:
    """State of one episode; schedulers read it and fill `messages` and `tools` at the start."""

    request: RolloutRequest
    budget: Budget = field(default_factory=Budget)
    """Its limits."""
    messages: list[Message] = field(default_factory=list)
    tools: tuple[Tool, ...] = ()
    schemas: tuple[dict[str, Any], ...] = ()
    """Of `tools`, as the renderer gets them."""
    trace: TokenTrace = field(default_factory=TokenTrace)
    """What the policy sees now."""
    branches: list[tuple[Segment, ...]] = field(default_factory=list)
    """Earlier traces, which a change of the history left behind."""
    constraint: Constraint | None = None
    """What the next turn must look like; gone once it is sampled."""
    spoken_from: int = 0
    """Ids of `trace` before the assistant's message that is being written."""
    num_sampled: int = 0
    """Tokens over all turns."""
    turns: list[Turn] = field(default_factory=list)
    tool_results: list[ToolResult] = field(default_factory=list)
    rewards: dict[str, float | None] = field(default_factory=dict)
    reward_weights: dict[str, float] = field(default_factory=dict)
    """By name; a rubric's own weights take their place."""
    infos: dict[str, Any] = field(default_factory=dict)
    """JSON values that go into `rollout_infos`."""
    timings: dict[str, float] = field(default_factory=dict)
    """Seconds, by phase."""
    resources: dict[str, Any] = field(default_factory=dict)
    """What a scheduler needs until `on_trajectory_end`: the env, a sandbox."""

    def spend(self, phase: str, seconds: float) -> None:
        """Add to a phase's time."""
        self.timings[phase] = self.timings.get(phase, 0.0) + seconds
