"""ReAct in one assistant message: the tool's result goes on the text the policy is writing.

The turn ends at `Observation:`, the scheduler writes what the tool said after it (mask 0), and the
policy continues. Goes with `--dialect react` (Yao et al. 2022, arXiv 2210.03629).
"""

from agentgym.rollout.gym_scheduler import GymScheduler
from agentgym.rollout.scheduler import NextTurn
from agentgym.rollout.state import Trajectory
from agentgym.trajectory import Turn

MARK = "Observation:"


class ReActScheduler(GymScheduler):
    """Continues the policy's message with tool results; other messages of the env end it."""

    stop = (MARK,)

    async def step(self, trajectory: Trajectory, turn: Turn) -> NextTurn:
        """The results of the turn's calls as text to continue, else what the env says."""
        following = await super().step(trajectory, turn)
        if not following.messages or any(m.role != "tool" for m in following.messages):
            return following
        results = f"\n{MARK} ".join(message.content for message in following.messages)
        head, mark, _ = turn.text.partition(MARK)
        if not mark:
            return NextTurn(text=f"\n{MARK} {results}\n")
        return NextTurn(completion=head + mark, text=f" {results}\n")
