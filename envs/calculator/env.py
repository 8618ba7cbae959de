"""Arithmetic that takes several turns, because the tool computes one operation at a time.

Everything the episode needs comes from `ToolEnv`; this class says what is asked, what the tool may
do, and what an answer is worth. It is the env to copy.
"""

import re
from collections.abc import Sequence
from fractions import Fraction
from functools import cache

from agentgym.envs.calculator.oracle import oracle
from agentgym.envs.calculator.scoring import has_exact_form, read_answer
from agentgym.envs.calculator.tasks import LEVELS, draw
from agentgym.envs.levels import checked_levels, leveled_tasks
from agentgym.envs.taskset import TaskSet
from agentgym.envs.tool_env import Episode, ToolEnv
from agentgym.errors import ConfigError, ToolError
from agentgym.messages import Message
from agentgym.tools import Tool, tool
from agentgym.tools.calculator import calculator
from agentgym.trajectory import Task

_SYSTEM = (
    "Solve the problem with the calculator, one operation per call. "
    "End with 'Answer: ' and the number, for example 'Answer: 42'."
)


_OPERATION = re.compile(r"(?<=[0-9.)])\s*(?:\*\*|//|[-+*/%\u00d7\u00f7\u2212])")
"""An operator between two operands, as opposed to a sign."""


class CalculatorEnv(ToolEnv):
    """Word and expression problems; rewards `correct` (0.9) and `format` (0.1).

    Args:
        levels: what to ask, see `tasks.LEVELS`; they take turns.
        max_operations_per_call: operations the tool computes at once; `None` is no limit.

    Raises:
        ConfigError: a level that does not exist, or a limit below one.
    """

    system_prompt = _SYSTEM
    reward_weights = {"correct": 0.9, "format": 0.1}
    max_turns = 10

    def __init__(
        self, levels: Sequence[int] = (1, 2, 3), *, max_operations_per_call: int | None = 1
    ) -> None:
        self.levels = checked_levels(levels, LEVELS)
        if max_operations_per_call is not None and max_operations_per_call < 1:
            raise ConfigError(
                f"max_operations_per_call must be at least 1, got {max_operations_per_call}"
            )
        self.tools = (limited_calculator(max_operations_per_call),)

    def tasks(self, split: str = "train") -> TaskSet:
        """Endless problems by index; no formula is in both splits.

        Raises:
            ConfigError: the split is neither "train" nor "eval".
        """
        return leveled_tasks(draw, split=split, levels=self.levels)

    def prompt(self, task: Task) -> str:
        return str(task["question"])

    def oracle(self, task: Task, messages: Sequence[Message]) -> Message:
        """What a perfect policy would say next."""
        return oracle(task, messages)

    async def score(self, episode: Episode) -> dict[str, float | None]:
        """`correct`: the one number given is the exact result; `format`: it is `Answer: N`."""
        answer = episode.answer or ""
        return {
            "correct": float(read_answer(answer) == Fraction(episode.task["answer"])),
            "format": float(has_exact_form(answer)),
        }


@cache
def limited_calculator(max_operations: int | None) -> Tool:
    """The calculator tool that refuses longer expressions."""

    @tool(name="calculator")
    async def limited(expression: str) -> str:
        """Compute an arithmetic expression.

        Args:
            expression: Numbers and operators, such as 12+30.
        """
        result = str(calculator.function(expression))
        _check_length(expression, max_operations)
        return result

    return limited


def _check_length(expression: str, limit: int | None) -> None:
    """Refuse an expression the calculator could read if it holds more operations than allowed."""
    count = len(_OPERATION.findall(expression))
    if limit is not None and count > limit:
        raise ToolError(
            f"calculator: {count} operations at once, but at most {limit} per call; "
            "start with one, such as 12+30"
        )
