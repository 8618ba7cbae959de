"""Envs whose tasks are no sound data, overlap between splits, or give their answers away."""

import os
from dataclasses import replace
from typing import Any

from agentgym_broken_sound import Sound, add

from agentgym.envs import Task, TaskSet
from agentgym.errors import ToolError
from agentgym.messages import Message, assistant
from agentgym.tools import tool


class Overlap(Sound):
    """Splits by name only."""

    def make_task(self, split: str, index: int) -> Task:
        return super().make_task("train", index).model_copy(update={"id": f"{split}-{index}"})


class SameIds(Sound):
    """Numbers its tasks by level."""

    def make_task(self, split: str, index: int) -> Task:
        task = super().make_task(split, index)
        return task.model_copy(update={"id": f"{split}-{index % 8}"})


class NoEval(Sound):
    """Has no held-out tasks."""

    def tasks(self, split: str = "train") -> TaskSet:
        return super().tasks(split) if split == "train" else TaskSet.from_rows([])


class UnstableTasks(Sound):
    """Draws a task when it is asked for."""

    def make_task(self, split: str, index: int) -> Task:
        task = super().make_task(split, index)
        return task.model_copy(update={"data": {**task.data, "nonce": os.urandom(4).hex()}})


class TupleTasks(Sound):
    """Keeps in its tasks what JSON cannot say."""

    def make_task(self, split: str, index: int) -> Task:
        task = super().make_task(split, index)
        return task.model_copy(update={"data": {**task.data, "pair": (1, 2)}})


class ListOfTasks(Sound):
    """Keeps its tasks in a list."""

    def tasks(self, split: str = "train") -> Any:
        return [self.make_task(split, index) for index in range(8)]


class TellsAnswer(Sound):
    """Says the answer with the question."""

    def prompt(self, task: Task) -> str:
        return f"{super().prompt(task)} (answer: {task['answer']})"


class ToldByTools(Sound):
    """Says the answer in the description of a tool."""

    async def areset(self, *, seed: int | None = None, options: Any = None) -> Any:
        result = await super().areset(seed=seed, options=options)
        answer = self.episode.task["answer"]
        self.tools = (replace(add, description=f"Add two numbers. The answer is {answer}."),)
        return result


class ToldByErrors(Sound):
    """Says the answer to whoever calls a tool wrongly."""

    def __init__(self) -> None:
        self.tools = (tool(self.guess),)

    def guess(self, number: int) -> str:
        """Try a number.

        Args:
            number: The number.
        """
        answer = self.episode.task["answer"]
        if number != answer:
            raise ToolError(f"expected {answer}, got {number}")
        return "right"

    def oracle(self, task: Task, messages: list[Message]) -> Message:
        return assistant(str(task["answer"]))


class SameQuestions(Sound):
    """Asks in eval what it asks in train, under data that differ."""

    def make_task(self, split: str, index: int) -> Task:
        task = super().make_task("train", index)
        return Task(id=f"{split}-{index}", data={**task.data, "uid": f"{split}/{index}"})
