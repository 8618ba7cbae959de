"""The referee of a trajectory: plays each turn, decides when it is over and what comes next.

A scheduler keeps no state of a trajectory on itself: everything lives in the `Trajectory` it is
handed, so one instance serves many at once. Order of a turn: generate, append, `on_turn_end`,
`check_finished`, then `step` or the end; `on_trajectory_end` runs on every path.
"""

from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from agentgym.errors import ConfigError
from agentgym.messages import Message, ToolResult
from agentgym.rollout.state import Trajectory
from agentgym.trajectory import StopReason, Turn


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnResult:
    """What playing the policy's message led to."""

    observation: tuple[Message, ...] = ()
    reward: float | None = None
    stop: StopReason | None = None
    """The env's verdict that the episode is over."""
    rewards: dict[str, float | None] = field(default_factory=dict)
    """Named scores, given at the end; `None` = unscored."""
    tool_results: tuple[ToolResult, ...] = ()
    infos: dict[str, Any] = field(default_factory=dict)
    """JSON values merged into `rollout_infos`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NextTurn:
    """What the model sees next."""

    messages: tuple[Message, ...] = ()


class Scheduler:
    """Hooks of one trajectory; override what differs.

    A subclass whose method only resembles a hook is refused when it is defined.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name in sorted(vars(cls).keys() - _HOOKS):
            near = get_close_matches(name, _HOOKS, n=1, cutoff=0.8)
            if near or name.startswith("on_"):
                hint = near[0] if near else f"one of {', '.join(sorted(_HOOKS))}"
                raise ConfigError(f"{cls.__name__}.{name} would never be called: use {hint}")

    async def on_trajectory_start(self, trajectory: Trajectory) -> None:
        """Put the first messages and the tools into `trajectory`."""

    async def on_turn_end(self, trajectory: Trajectory, turn: Turn) -> TurnResult:
        """Play the assistant message that was just appended."""
        return TurnResult()

    def check_finished(self, trajectory: Trajectory, turn: Turn) -> StopReason | None:
        """A reason to end beyond the env's verdict and the budget."""
        return None

    async def step(self, trajectory: Trajectory, turn: Turn) -> NextTurn:
        """What the model sees next; by default the env's observation."""
        return NextTurn(messages=turn.observation)

    async def on_trajectory_end(self, trajectory: Trajectory, reason: StopReason) -> None:
        """Free what the trajectory held; called on every path."""


_HOOKS = frozenset(name for name in vars(Scheduler) if not name.startswith("_"))
