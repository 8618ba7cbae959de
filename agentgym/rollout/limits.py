"""How much a trajectory may still do: the smallest remainder goes to the sampler."""

from typing import NamedTuple, Self

from agentgym.rollout.player import Player
from agentgym.rollout.state import Trajectory
from agentgym.trajectory import Budget, StopReason


class Remaining(NamedTuple):
    """Tokens the next turn may have, and what it means that they run out."""

    tokens: int
    limit: StopReason
    trajectory: Trajectory
    num_sampled: int
    """By the trajectory, before the turn."""

    @classmethod
    def of(cls, trajectory: Trajectory, player: Player) -> Self:
        """The smallest of the turn's, the trajectory's and the engine's limits."""
        budget, num_sampled = player.budget, trajectory.num_sampled
        room = room_left(trajectory, player)
        tokens = budget.max_sampled_tokens - num_sampled
        if budget.max_turn_tokens is not None:
            tokens = min(tokens, budget.max_turn_tokens)
        if room < tokens:
            return cls(room, StopReason.CONTEXT_OVERFLOW, trajectory, num_sampled)
        return cls(tokens, StopReason.LENGTH, trajectory, num_sampled)

    @property
    def reason(self) -> StopReason:
        """Why a turn that was cut, or had no room to begin, ends the trajectory.

        An engine may cut a turn before any of our limits: that is the turn's length.
        """
        sampled = self.trajectory.num_sampled - self.num_sampled
        return StopReason.LENGTH if 0 < sampled < self.tokens else self.limit


def room_left(trajectory: Trajectory, player: Player) -> int:
    """Tokens, of whatever source, that the trace may still take."""
    total = player.budget.max_total_tokens
    context = player.engine.max_context
    return (context if total is None else min(context, total)) - len(trajectory.trace)


def over_budget(trajectory: Trajectory, budget: Budget) -> StopReason | None:
    """The limit that the turn just played has reached."""
    turns = trajectory.turns
    if _num_blank(trajectory) >= budget.max_blank_turns:
        return StopReason.EMPTY
    if sum(bool(turn.action.malformed_calls) for turn in turns) > budget.max_parse_errors:
        return StopReason.MALFORMED
    if len(turns) >= budget.max_turns:
        return StopReason.MAX_TURNS
    return None


def _num_blank(trajectory: Trajectory) -> int:
    """Turns without words, calls or attempts at one."""
    actions = (turn.action for turn in trajectory.turns)
    return sum(
        not (action.content.strip() or action.tool_calls or action.malformed_calls)
        for action in actions
    )
