"""Envs whose episodes depend on something other than task and seed."""

import random
from dataclasses import replace
from typing import Any

import numpy as np
from agentgym_broken_sound import Sound, Talks, add

from agentgym.envs import Task
from agentgym.messages import Message, user


class RandomSeed(Sound):
    """Draws from a generator of its own, which nobody seeds."""

    _rng = np.random.default_rng()

    def prompt(self, task: Task) -> str:
        return f"{super().prompt(task)} (id {RandomSeed._rng.integers(10**9)})"


class UsedState(Sound):
    """Remembers the episode before in the env."""

    num_played = 0

    def prompt(self, task: Task) -> str:
        self.num_played += 1
        return f"{super().prompt(task)} (episode {self.num_played})"


class GlobalRandom(Sound):
    """Draws from the global generator."""

    def prompt(self, task: Task) -> str:
        return f"{super().prompt(task)} (id {random.randrange(10**9)})"


class GlobalNumpy(Sound):
    """Seeds NumPy's global generator."""

    def prompt(self, task: Task) -> str:
        np.random.seed(len(task.id))
        return str(super().prompt(task))


class ClassState(Talks):
    """Keeps the task of the episode on the class."""

    task: Task

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        ClassState.task = self.pick_task(options)
        return [user(f"What is {self.task['x']} + {self.task['y']}?")], {}


class Counts(Sound):
    """Counts its episodes on the class."""

    num_episodes = 0

    def prompt(self, task: Task) -> str | list[Message]:
        Counts.num_episodes += 1
        return super().prompt(task)


class HashOrder(Sound):
    """Lists the members of a set as they come."""

    def prompt(self, task: Task) -> str:
        words = {"apple", "pear", "plum", "cherry", "fig", "grape", "melon", "kiwi"}
        return f"{super().prompt(task)} ({' '.join(words)})"


class HashTasks(Sound):
    """Its tasks hold the members of a set as they come, which no prompt shows."""

    def make_task(self, split: str, index: int) -> Task:
        task = super().make_task(split, index)
        hints = list({"apple", "pear", "plum", "cherry", "fig", "grape", "melon", "kiwi"})
        return task.model_copy(update={"data": {**task.data, "hints": hints}})


class TwoSides(Talks):
    """Its step and its astep are two."""

    def step(self, action: Any) -> Any:
        return [], 0.0, True, False, {"report": {"side": "sync"}}

    async def astep(self, action: Any) -> Any:
        reward = float(action.content == str(self.task["answer"]))
        return [], reward, True, False, {"report": {"side": "async"}}


class ChangesTasks(Sound):
    """Writes into the task that all members of its group are given."""

    async def areset(self, *, seed: int | None = None, options: Any = None) -> Any:
        if options:
            options["task"].data["played"] = True
        return await super().areset(seed=seed, options=options)


class ChangesTools(Sound):
    """Offers another tool once the episode has begun, of which no model is told."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.tools = (add,)
        return super().reset(seed=seed, options=options)

    async def astep(self, action: Any) -> Any:
        self.tools = (add, replace(add, name="more"))
        return await super().astep(action)


class FirstCallOnly(Sound):
    """Answers the first of several calls and forgets the others."""

    async def astep(self, action: Any) -> Any:
        first = action.model_copy(update={"tool_calls": action.tool_calls[:1]})
        return await super().astep(first)
