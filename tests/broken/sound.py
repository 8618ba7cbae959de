"""The envs with which nothing is wrong; the broken ones differ from them in one thing each."""

from random import Random
from typing import Any

from agentgym.envs import Env, Episode, Task, TaskSet, ToolEnv
from agentgym.messages import Message, assistant, user
from agentgym.tools import tool


@tool
def add(x: int, y: int) -> int:
    """Add two numbers.

    Args:
        x: The first.
        y: The second.
    """
    return x + y


class Sound(ToolEnv):
    """Adds two numbers; nothing is wrong with it."""

    tools = (add,)
    max_turns = 6

    def tasks(self, split: str = "train") -> TaskSet:
        return TaskSet.procedural(lambda index: self.make_task(split, index))

    def make_task(self, split: str, index: int) -> Task:
        rng = Random(f"{split}/{index}")
        x, y = 2 * rng.randint(50, 499) + (split == "eval"), rng.randint(100, 999)
        return Task(id=f"{split}-{index}", data={"x": x, "y": y, "answer": x + y})

    def prompt(self, task: Task) -> str | list[Message]:
        return f"What is {task['x']} + {task['y']}?"

    def score(self, episode: Episode) -> dict[str, float | None]:
        return {"correct": float(episode.answer == str(episode.task["answer"]))}

    def oracle(self, task: Task, messages: list[Message]) -> Message:
        results = [message.content for message in messages if message.role == "tool"]
        if not results:
            return assistant("", ("add", {"x": task["x"], "y": task["y"]}))
        return assistant(str(task["answer"]))


class Talks(Env):
    """The same in one turn and without a tool: raw `reset` and `step`; nothing is wrong."""

    def tasks(self, split: str = "train") -> TaskSet:
        return TaskSet.procedural(lambda index: Sound.make_task(self, split, index))  # type: ignore[arg-type]

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.task = self.pick_task(options)
        return [user(f"What is {self.task['x']} + {self.task['y']}?")], {}

    def step(self, action: Any) -> Any:
        reward = float(action.content == str(self.task["answer"]))
        return [], reward, True, False, {}

    def oracle(self, task: Task, messages: list[Message]) -> Message:
        return assistant(str(task["answer"]))
