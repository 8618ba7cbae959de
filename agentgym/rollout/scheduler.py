"""The referee of a trajectory: plays each turn, decides when it is over and what comes next.

A scheduler keeps no state of a trajectory on itself: everything lives in the `Trajectory` it is
handed, so one instance serves many at once. Order of a turn: generate, append, `on_turn_end`,
`check_finished`, then `step` or the end; `on_trajectory_end` runs on every path.
"""

from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Protocol

from agentgym.constraint import Constraint
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
    constraint: Constraint | None = None
    """Of the next turn, if `NextTurn` has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NextTurn:
    """What the model sees next: messages to answer, or its own message to go on with.

    What is put into the policy's mouth is never trained, and what is taken back from it stays in
    the record. To go on without a word of the scheduler's, give `text=""`.
    """

    messages: tuple[Message, ...] = ()
    """Said to the policy; its own message is closed before them."""
    text: str | None = None
    """Goes on the policy's message, which stays open: the next turn continues it."""
    completion: str | None = None
    """What the policy is to have said in its last turn, in place of what it sampled. As many of
    the sampled tokens as agree with it stay; the rest of it counts as injected."""
    history: tuple[Message, ...] | None = None
    """The conversation to show before `messages`, in place of the one so far: the trajectory
    forks."""
    constraint: Constraint | None = None
    """What the next turn, and only that, must look like; its tokens are not trained. That of the
    first turn is `Trajectory.constraint`."""

    def __post_init__(self) -> None:
        """Refuse what cannot be said at once.

        Raises:
            ValueError: text to continue beside messages or another history.
        """
        if self.text is not None and (self.messages or self.history is not None):
            raise ValueError("NextTurn: text continues the policy's message, so nothing follows it")
        if self.history is not None and not (self.history or self.messages):
            raise ValueError("NextTurn: the history needs at least one message")
        if self.history is not None and self.completion is not None:
            raise ValueError("NextTurn: put the other completion into the history")

    @property
    def continues(self) -> bool:
        """Whether the policy's message stays open."""
        edits_only = self.completion is not None and not self.messages
        return self.text is not None or edits_only


class Playing(Protocol):
    """One trajectory being played, as `Scheduler.run` drives it."""

    @property
    def trajectory(self) -> Trajectory:
        """Everything known about it."""
        ...

    async def start(self) -> None:
        """Call `on_trajectory_start` and render the first prompt."""
        ...

    async def turn(self) -> StopReason | None:
        """Let the policy speak and play what it said; the reason if it is over."""
        ...

    async def follow(self, following: NextTurn) -> StopReason | None:
        """Put in what the policy sees next; the reason if no turn can follow."""
        ...

    async def next_turn(self) -> NextTurn:
        """Ask `step` what follows the last turn."""
        ...


class Scheduler:
    """Hooks of one trajectory; override what differs, or `run` as a whole.

    A subclass whose method only resembles a hook is refused when it is defined.
    """

    stop: tuple[str, ...] = ()
    """Strings that end a turn, beside the model's own end tokens."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name in sorted(vars(cls).keys() - _HOOKS):
            near = get_close_matches(name, _HOOKS, n=1, cutoff=0.8)
            if near or name.startswith("on_"):
                hint = near[0] if near else f"one of {', '.join(sorted(_HOOKS))}"
                raise ConfigError(f"{cls.__name__}.{name} would never be called: use {hint}")

    async def run(self, playing: Playing) -> StopReason:
        """Play from the first prompt to the end, which the loop records; by default turn by turn.

        An override decides who speaks when. Time and token limits hold for it all the same.
        """
        await playing.start()
        while True:
            reason = await playing.turn()
            if reason is None:
                reason = await playing.follow(await playing.next_turn())
            if reason is not None:
                return reason

    async def on_trajectory_start(self, trajectory: Trajectory) -> None:
        """Put the first messages and the tools into `trajectory`."""

    async def on_turn_end(self, trajectory: Trajectory, turn: Turn) -> TurnResult:
        """Play the assistant message that was just appended."""
        return TurnResult()

    def check_finished(self, trajectory: Trajectory, turn: Turn) -> StopReason | None:
        """A reason to end beyond the env's verdict and the budget.

        Called on the event loop, so it must be quick: a slow check belongs into `on_turn_end`.
        """
        return None

    async def step(self, trajectory: Trajectory, turn: Turn) -> NextTurn:
        """What the model sees next; by default the env's observation."""
        return NextTurn(messages=turn.observation)

    async def on_trajectory_end(self, trajectory: Trajectory, reason: StopReason) -> None:
        """Free what the trajectory held; called on every path."""


_HOOKS = frozenset(name for name in vars(Scheduler) if not name.startswith("_"))
