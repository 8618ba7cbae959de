"""Follow a chain through a table that only a tool can see: each value is the next key."""

from collections.abc import Sequence

from agentgym.envs.levels import checked_levels, leveled_tasks
from agentgym.envs.lookup.codes import normalize
from agentgym.envs.lookup.oracle import oracle
from agentgym.envs.lookup.scoring import is_correct, progress
from agentgym.envs.lookup.tasks import LEVELS, draw
from agentgym.envs.taskset import TaskSet
from agentgym.envs.tool_env import Episode, ToolEnv
from agentgym.errors import ToolError
from agentgym.messages import Message
from agentgym.tools import tool
from agentgym.trajectory import Task

_SYSTEM = (
    "Find the code with the lookup tool: it gives the value of a key, and that value is the next "
    "key. Codes are a letter and three digits. End with 'Answer: ' and the code, for example "
    "'Answer: A123'."
)


class LookupEnv(ToolEnv):
    """Multi-hop look-ups; rewards `correct` (0.8) and `progress` (0.2).

    Args:
        levels: how many look-ups, see `tasks.LEVELS`; they take turns.

    Raises:
        ConfigError: a level that does not exist.
    """

    system_prompt = _SYSTEM
    reward_weights = {"correct": 0.8, "progress": 0.2}
    max_turns = 10

    def __init__(self, levels: Sequence[int] = (1, 2, 3)) -> None:
        self.levels = checked_levels(levels, LEVELS)
        self.tools = (tool(self.lookup),)

    def tasks(self, split: str = "train") -> TaskSet:
        """Endless tables by index; no chain is in both splits."""
        return leveled_tasks(draw, split=split, levels=self.levels)

    def prompt(self, task: Task) -> str:
        times = "1 look-up" if task["hops"] == 1 else f"{task['hops']} look-ups"
        return f"Begin with the key {task['start']}. Which code is reached after {times}?"

    async def lookup(self, key: str) -> str:
        """Get the value of a key.

        Args:
            key: A code, such as A123.
        """
        table: dict[str, str] = self.episode.task["table"]
        value = table.get(normalize(key))
        if value is None:
            raise ToolError(f"lookup: there is no key {key[:20]!r}; use one that you were given")
        return value

    async def score(self, episode: Episode) -> dict[str, float | None]:
        """`correct`: the one code given is right; `progress`: how far the chain was followed."""
        chain: list[str] = episode.task["chain"]
        return {
            "correct": float(is_correct(episode.answer, chain=chain)),
            "progress": progress(episode.tool_results, chain=chain),
        }

    def oracle(self, task: Task, messages: Sequence[Message]) -> Message:
        """What a perfect policy would say next."""
        return oracle(task, messages)
