"""Reach a target from given numbers: easy to check, hard to find."""

from collections.abc import Sequence

from agentgym.envs.countdown.oracle import oracle
from agentgym.envs.countdown.scoring import closeness, read_value
from agentgym.envs.countdown.tasks import LEVELS, draw
from agentgym.envs.levels import checked_levels, leveled_tasks
from agentgym.envs.taskset import TaskSet
from agentgym.envs.tool_env import Episode, ToolEnv
from agentgym.messages import Message
from agentgym.tools.calculator import calculator
from agentgym.trajectory import Task

_SYSTEM = (
    "Combine the numbers with + - * / and brackets so that the result is the target. Use each "
    "number at most once, and at least two of them. Try expressions with the calculator. End with "
    "'Answer: ' and the expression alone, for example 'Answer: (7-2)*3'."
)


class CountdownEnv(ToolEnv):
    """The numbers game; rewards `solved` (0.9) and `close` (0.1).

    Args:
        levels: how many numbers, see `tasks.LEVELS`; they take turns.

    Raises:
        ConfigError: a level that does not exist.
    """

    system_prompt = _SYSTEM
    tools = (calculator,)
    reward_weights = {"solved": 0.9, "close": 0.1}
    max_turns = 10

    def __init__(self, levels: Sequence[int] = (1, 2, 3)) -> None:
        self.levels = checked_levels(levels, LEVELS)

    def tasks(self, split: str = "train") -> TaskSet:
        """Endless games by index; no numbers with the same target are in both splits."""
        return leveled_tasks(draw, split=split, levels=self.levels)

    def prompt(self, task: Task) -> str:
        return f"Numbers: {', '.join(map(str, task['numbers']))}. Target: {task['target']}."

    async def score(self, episode: Episode) -> dict[str, float | None]:
        """`solved`: the one expression given is the target; `close`: it is near, see `scoring`."""
        target: int = episode.task["target"]
        value = read_value(episode.answer, numbers=episode.task["numbers"])
        return {"solved": float(value == target), "close": closeness(value, target)}

    def oracle(self, task: Task, messages: Sequence[Message]) -> Message:
        """What a perfect policy would say next."""
        return oracle(task, messages)
