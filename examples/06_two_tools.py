"""An env with two tools that see the episode's task.

agentgym check scales --plugins examples/06_two_tools.py
"""

from random import Random

from agentgym.envs import Episode, Task, TaskSet, ToolEnv, register
from agentgym.tools import tool


class ScalesEnv(ToolEnv):
    """Which of some parcels is the heaviest?"""

    system_prompt = "Find out with the tools, then answer with nothing but the parcel's letter."

    def __init__(self) -> None:
        self.tools = (tool(self.parcels), tool(self.weigh))

    def parcels(self) -> list[str]:
        """List the parcels."""
        return list(self.episode.task["grams"])

    def weigh(self, parcel: str) -> int:
        """Weigh a parcel, in grams.

        Args:
            parcel: Its letter.
        """
        return int(self.episode.task["grams"][parcel])

    def tasks(self, split: str = "train") -> TaskSet:
        return TaskSet.procedural(lambda i: Task(id=f"{split}-{i}", data=parcels(f"{split}/{i}")))

    def prompt(self, task: Task) -> str:
        return "Which parcel is the heaviest?"

    def score(self, episode: Episode) -> dict[str, float | None]:
        return {"correct": float(episode.answer == episode.task["answer"])}


def parcels(seed: str) -> dict[str, object]:
    grams = dict(zip("ABCDEFGH", Random(seed).sample(range(100, 1000), 8), strict=True))
    return {"grams": grams, "answer": max(grams, key=grams.__getitem__)}


register("Scales-v0", ScalesEnv)
