"""The history keeps the last reasoning only; a wrong answer gets a hint as the next question.

Thinking models are served without their earlier reasoning, so they are trained without it too: each
turn sees another history, the trajectory forks, and every turn is trained where it was sampled. All
of them share the trajectory's advantage. After ms-swift's scheduler of the same name.
"""

from collections.abc import Sequence

from agentgym.messages import Message, user
from agentgym.rollout.scheduler import NextTurn
from agentgym.rollout.schedulers.second_chance import SecondChanceScheduler, hinted_turns
from agentgym.rollout.state import Trajectory
from agentgym.trajectory import Turn


class ThinkingTipsScheduler(SecondChanceScheduler):
    """Answers a wrong answer with `hint`, and shows no reasoning but that of the last turn."""

    hint: str = "This answer is not correct. Think about where it went wrong, then try again."

    async def step(self, trajectory: Trajectory, turn: Turn) -> NextTurn:
        """The hint or what the env says, after a history with the last reasoning only."""
        is_hinted = turn.index in hinted_turns(trajectory)
        said = (user(self.hint),) if is_hinted else turn.observation
        history = with_last_reasoning(trajectory.messages)
        if history == trajectory.messages:
            return NextTurn(messages=said)
        return NextTurn(messages=said, history=tuple(history))


def with_last_reasoning(messages: Sequence[Message]) -> list[Message]:
    """The conversation without the reasoning of any but its last assistant message."""
    speaking = [i for i, message in enumerate(messages) if message.role == "assistant"]
    return [
        message.model_copy(update={"reasoning": None}) if i in speaking[:-1] else message
        for i, message in enumerate(messages)
    ]
