"""Customer service with a database: the policy forbids what the tools allow.

The reward compares the final database with the right one, so it cannot be talked into anything.
"""

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

from agentgym.envs.base import Info, ResetResult, StepResult
from agentgym.envs.levels import checked_levels, leveled_tasks
from agentgym.envs.shop.database import Database
from agentgym.envs.shop.desk import Desk, tools_for
from agentgym.envs.shop.oracle import oracle
from agentgym.envs.shop.rules import policy_for
from agentgym.envs.shop.scoring import score
from agentgym.envs.shop.tasks import LEVELS, draw
from agentgym.envs.taskset import TaskSet
from agentgym.envs.tool_env import Episode, ToolEnv
from agentgym.messages import Message, user
from agentgym.trajectory import Task


class ShopEnv(ToolEnv):
    """Requests of customers; rewards `resolved` (0.4), `reason` (0.5) and `brief` (0.1).

    Args:
        levels: what is asked, see `tasks.LEVELS`; they take turns. Rules and tools are those
            that they need.

    Raises:
        ConfigError: a level that does not exist.
    """

    reward_weights = {"resolved": 0.4, "reason": 0.5, "brief": 0.1}
    max_turns = 12

    _desk: Desk
    _said: list[str]

    def __init__(self, levels: Sequence[int] = (1, 2, 3)) -> None:
        self.levels = checked_levels(levels, LEVELS)
        played = [LEVELS[level] for level in self.levels]
        kinds = {kind for level in played for kind in level.kinds}
        self.system_prompt = policy_for(kinds)
        self.tools = tools_for(kinds, by_number=all(level.by_number for level in played))

    def tasks(self, split: str = "train") -> TaskSet:
        """Endless conversations by index; none is in both splits."""
        return leveled_tasks(draw, split=split, levels=self.levels)

    def prompt(self, task: Task) -> str:
        return str(task["turns"][0]["text"])

    async def areset(self, *, seed: int | None = None, options: Info | None = None) -> ResetResult:
        """A fresh copy of the task's database, and the customer's first message."""
        result = await super().areset(seed=seed, options=options)
        self._desk = Desk(Database(deepcopy(self.episode.task["tables"])))
        self.episode.state["desk"] = self._desk
        self._said = []
        return result

    async def astep(self, action: Any) -> StepResult:
        """Run calls; an answer settles a request, and the customer may write again."""
        answered = not (action.tool_calls or action.malformed_calls) and action.content.strip()
        if not answered:
            return await super().astep(action)
        turns = self.episode.task["turns"]
        looked = turns[len(self._said)]["request"][2] in self._desk.seen
        self._said.append(action.content if looked else "")
        if len(self._said) == len(turns):
            return await super().astep(action)
        self.episode.turns += 1
        self.episode.messages.append(action)
        return await self._go_on([user(turns[len(self._said)]["text"])], [])

    async def score(self, episode: Episode) -> dict[str, float | None]:
        """`resolved`: right state and outcome; `reason`: right reason too; `brief`: few calls."""
        return score(
            episode.task["turns"],
            self._said,
            state_is_right=self._desk.shop.tables == episode.task["goal"],
            num_calls=len(episode.tool_results),
        )

    def oracle(self, task: Task, messages: Sequence[Message]) -> Message:
        """What a perfect policy would say next."""
        return oracle(task, messages)
