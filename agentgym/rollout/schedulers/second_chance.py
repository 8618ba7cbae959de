"""A wrong answer that the env does not get to see: what the tips schedulers share."""

from agentgym.rollout.gym_scheduler import GymScheduler
from agentgym.rollout.scheduler import TurnResult
from agentgym.rollout.state import Trajectory
from agentgym.threads import in_thread
from agentgym.trajectory import Turn

REPORT = "hinted_turns"
"""Where the record lists the turns, from 0, whose answer was wrong and got a hint."""


class SecondChanceScheduler(GymScheduler):
    """Holds a wrong final answer back from the env, at most `max_hints` times.

    A turn that only calls tools is played as ever. The env scores what it sees: the last answer.
    """

    max_hints: int = 1
    """Of one trajectory; then the env gets the answer, right or wrong."""

    def is_right(self, trajectory: Trajectory, turn: Turn) -> bool | None:
        """Whether the turn's answer is right; `None` if it gives none.

        By default the task's `answer`, compared as mathematics (`agentgym.rewards.math`).
        """
        from agentgym.rewards.math import grade

        action, gold = turn.action, trajectory.request.task.data.get("answer")
        if gold is None or action.tool_calls or action.malformed_calls or not action.content:
            return None
        return grade(str(gold), action.content)

    async def on_turn_end(self, trajectory: Trajectory, turn: Turn) -> TurnResult:
        """Step the env, unless the policy is to get another chance."""
        hinted = hinted_turns(trajectory)
        may_go_on = len(hinted) < self.max_hints and _can_go_on(trajectory)
        if may_go_on and await in_thread(lambda: self.is_right(trajectory, turn)) is False:
            return TurnResult(infos={REPORT: [*hinted, turn.index]})
        return await super().on_turn_end(trajectory, turn)


def _can_go_on(trajectory: Trajectory) -> bool:
    """Whether another turn is allowed: on the last one, an answer is an answer."""
    budget = trajectory.budget
    has_turns = len(trajectory.turns) + 1 < budget.max_turns
    return has_turns and trajectory.num_sampled < budget.max_sampled_tokens


def hinted_turns(trajectory: Trajectory) -> list[int]:
    """Turns whose wrong answer was held back."""
    return list(trajectory.infos.get(REPORT, ()))
