"""A new env with a new tool, and the policy learns it.

    agentgym train --plugins examples/01_new_env.py --env clock

The tool is called `calculator` because the embedded policy has only ever called a tool of that
name; with a real model, call it what you like.
"""

from agentgym.envs import Episode, Task, TaskSet, ToolEnv, register
from agentgym.tools import tool
from agentgym.tools.calculator import evaluate

ROWS = [{"id": f"{s}+{h}", "start": s, "hours": h} for s in range(2, 24) for h in range(2, 100)]


@tool(name="calculator")
def clock(expression: str) -> str:
    """Add hours on a clock that goes from 0 to 23.

    Args:
        expression: Hours, such as 17+9.
    """
    return str(evaluate(expression) % 24)


class ClockEnv(ToolEnv):
    """Hours on a clock: 17 + 9 is 2."""

    tools = (clock,)
    system_prompt = (
        "Solve the problem with the calculator, one operation per call. "
        "End with 'Answer: ' and the number, for example 'Answer: 42'."
    )

    def tasks(self, split: str = "train") -> TaskSet:
        is_eval = split == "eval"
        return TaskSet.from_rows([row for i, row in enumerate(ROWS) if (i % 5 == 0) is is_eval])

    def prompt(self, task: Task) -> str:
        return f"What is {task['start']} + {task['hours']}?"

    def score(self, episode: Episode) -> dict[str, float | None]:
        right = (episode.task["start"] + episode.task["hours"]) % 24
        return {"correct": float(episode.answer == f"Answer: {right}")}


register("Clock-v0", ClockEnv)
