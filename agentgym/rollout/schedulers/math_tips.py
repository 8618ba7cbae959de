"""A wrong answer is cut off, and the policy goes on from a hint in its own voice.

What stands before the answer is kept and trained, the hint is not (mask 0), and the answer that was
cut stays in the record without being trained. After ms-swift's scheduler of the same name.
"""

import re

from agentgym.rendering.reasoning import FAMILIES
from agentgym.rollout.scheduler import NextTurn
from agentgym.rollout.schedulers.second_chance import SecondChanceScheduler, hinted_turns
from agentgym.rollout.state import Trajectory
from agentgym.trajectory import Turn

_ANSWER = re.compile(r"\\boxed\{|<answer>|####|\*{0,2}\b(?:final )?answer\b", re.IGNORECASE)


class MathTipsScheduler(SecondChanceScheduler):
    """Cuts a wrong answer and injects `hint` in its place."""

    hint: str = "But wait, let me check this again."

    def answer_start(self, text: str) -> int:
        """Where in the turn's text the answer begins: its last mark, else its last line.

        What stands in the reasoning is no answer.
        """
        ends = [text.rfind(mark.close) + len(mark.close) for mark in FAMILIES if mark.close in text]
        begin = max(ends, default=0)
        found = [match.start() for match in _ANSWER.finditer(text, begin)]
        return found[-1] if found else max(begin, text.rstrip().rfind("\n") + 1)

    async def step(self, trajectory: Trajectory, turn: Turn) -> NextTurn:
        """The hint in place of a wrong answer, else what the env says."""
        if turn.index not in hinted_turns(trajectory):
            return await super().step(trajectory, turn)
        return NextTurn(completion=turn.text[: self.answer_start(turn.text)], text=self.hint)
