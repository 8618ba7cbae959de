"""Envs that are broken in one way each, and one that is not; `agentgym check` must tell.

A plugin: importing it registers every class as `NAME-v0`.
"""

import asyncio
import os
import random
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from agentgym.envs import Env, Episode, Task, TaskSet, ToolEnv, register
from agentgym.errors import EnvError, ToolError
from agentgym.messages import Message, assistant, user
from agentgym.tools import tool

KEPT: list[Any] = []
"""What must not be freed by accident."""


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


class NanReward(Talks):
    """Divides nothing by nothing."""

    def step(self, action: Any) -> Any:
        return [], float("nan"), True, False, {}


class Unscored(Sound):
    """Its grader never finds a score."""

    def score(self, episode: Episode) -> dict[str, float | None]:
        return {"correct": float("nan")}


class Constant(Sound):
    """Pays everybody."""

    def score(self, episode: Episode) -> dict[str, float | None]:
        return {"correct": 0.5}


class TooMuch(Sound):
    """Pays in cents."""

    def score(self, episode: Episode) -> dict[str, float | None]:
        return {"correct": 100.0 * (episode.answer == str(episode.task["answer"]))}


class BadOracle(Sound):
    """Its oracle is wrong half of the time."""

    def oracle(self, task: Task, messages: list[Message]) -> Message:
        return assistant(str(task["answer"] + int(task.id[-1]) % 2))


class EchoPays(Sound):
    """Looks for the numbers of the question in the answer."""

    def score(self, episode: Episode) -> dict[str, float | None]:
        return {"correct": float(str(episode.task["x"]) in (episode.answer or ""))}

    def oracle(self, task: Task, messages: list[Message]) -> Message:
        return assistant(str(task["x"]))


class ContainsPays(Sound):
    """Looks for the answer anywhere in a list of guesses."""

    def score(self, episode: Episode) -> dict[str, float | None]:
        return {"correct": float(str(episode.task["answer"]) in (episode.answer or ""))}


class SilencePays(Sound):
    """Pays for everything but a wrong answer."""

    def score(self, episode: Episode) -> dict[str, float | None]:
        return {"correct": float(episode.answer in (None, str(episode.task["answer"])))}


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


class PaysTwice(Talks):
    """Its step is set after the class is made, so nothing stands around it."""


async def _pay(self: Talks, action: Message) -> Any:
    reward = float(action.content == str(self.task["answer"]))
    return [], reward, True, False, {}


PaysTwice.astep = _pay  # type: ignore[method-assign,assignment]
PaysTwice.step = Talks.step  # type: ignore[method-assign]


class LeaksThread(Sound):
    """Starts a thread for every episode and never ends it."""

    def prompt(self, task: Task) -> str | list[Message]:
        threading.Thread(target=threading.Event().wait, daemon=True).start()
        return super().prompt(task)


class KeepsTheProcess(LeaksThread):
    """The same with a thread that Python waits for at its exit."""

    def prompt(self, task: Task) -> str | list[Message]:
        if os.environ.get("AGENTGYM_MAY_HANG"):
            threading.Thread(target=threading.Event().wait, daemon=False).start()
        return Sound.prompt(self, task)


class LeaksFile(Sound):
    """Opens its data for every episode and never closes it."""

    def prompt(self, task: Task) -> str | list[Message]:
        KEPT.append(Path(__file__).open())  # noqa: SIM115
        return super().prompt(task)


class LeaksProcess(Sound):
    """Starts a server for every episode and never ends it."""

    def prompt(self, task: Task) -> str | list[Message]:
        KEPT.append(subprocess.Popen(["sleep", "20"]))
        return super().prompt(task)


class CloseRaises(Sound):
    """Closes what `reset` opened, also where there was no reset."""

    def prompt(self, task: Task) -> str | list[Message]:
        self.opened = [task]
        return super().prompt(task)

    def close(self) -> None:
        self.opened.pop()


class CloseTwiceRaises(Sound):
    """Its close is set after the class is made, so that nothing guards it."""


async def _close(self: Sound) -> None:
    if "closed" in vars(self):
        raise ValueError("closed already")
    vars(self)["closed"] = True


CloseTwiceRaises.aclose = _close  # type: ignore[method-assign]
CloseTwiceRaises.close = lambda self: None  # type: ignore[method-assign]


class Hangs(Talks):
    """Waits for a server that never answers."""

    def step(self, action: Any) -> Any:
        time.sleep(3600)


class BlocksTheLoop(Env):
    """Waits in async code as if it were sync."""

    async def areset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return "go", {}

    async def astep(self, action: Any) -> Any:
        time.sleep(3600)  # noqa: ASYNC251


class NoText(Talks):
    """Observes a number."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed, options=options)
        return 42, {}


class Cancels(Talks):
    """Lets a cancellation of its own out."""

    async def astep(self, action: Any) -> Any:
        raise asyncio.CancelledError


class ListOfTasks(Sound):
    """Keeps its tasks in a list."""

    def tasks(self, split: str = "train") -> Any:
        return [self.make_task(split, index) for index in range(8)]


class NoOracle(Sound):
    """Its oracle has nothing to say."""

    def oracle(self, task: Task, messages: list[Message]) -> Any:
        return None


class NoRange(Sound):
    """Declares no range."""

    reward_range = None  # type: ignore[assignment]


class HangsInClose(Talks):
    """Waits for a server that never says goodbye."""

    def close(self) -> None:
        time.sleep(3600)


class Silent(Talks):
    """Goes on without a word."""

    def step(self, action: Any) -> Any:
        if action.content == str(self.task["answer"]):
            return [], 1.0, True, False, {}
        return [], 0.0, False, False, {}


class BadSchema(Sound):
    """Its schema was written by hand."""

    tools = (replace(add, parameters={"type": "object", "properties": {"x": {"type": "int"}}}),)


class WrongSchema(Sound):
    """Its schema asks for other arguments than the function takes."""

    tools = (
        replace(
            add,
            parameters={
                "type": "object",
                "properties": {"a": {"type": "integer", "description": "A number."}},
                "required": ["a"],
            },
        ),
    )


class SameToolNames(Sound):
    """Two tools, one name."""

    tools = (add, tool(name="add")(lambda: 1))


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


class TellsAnswer(Sound):
    """Says the answer with the question."""

    def prompt(self, task: Task) -> str:
        return f"{super().prompt(task)} (answer: {task['answer']})"


class NumpyReward(Talks):
    """Computes rewards with NumPy."""

    def step(self, action: Any) -> Any:
        return [], np.float64(action.content == str(self.task["answer"])), True, False, {}


class NumpyEnd(Talks):
    """Computes its end with NumPy."""

    def step(self, action: Any) -> Any:
        reward = float(action.content == str(self.task["answer"]))
        return [], reward, np.bool_(True), False, {}


class Fragile(Talks):
    """Fails on words where it expects a number."""

    def step(self, action: Any) -> Any:
        reward = float(int(action.content or 0) == self.task["answer"])
        return [], reward, True, False, {}


class TwoSides(Talks):
    """Its step and its astep are two."""

    def step(self, action: Any) -> Any:
        return [], 0.0, True, False, {"report": {"side": "sync"}}

    async def astep(self, action: Any) -> Any:
        reward = float(action.content == str(self.task["answer"]))
        return [], reward, True, False, {"report": {"side": "async"}}


class Exits(Sound):
    """Ends the process when its data are missing."""

    def prompt(self, task: Task) -> str:
        raise SystemExit("no data")


class CannotReset(Sound):
    """Fails at once."""

    def prompt(self, task: Task) -> str:
        raise EnvError("the data set is empty")


class BadReport(Sound):
    """Reports what JSON cannot say."""

    async def areset(self, *, seed: int | None = None, options: Any = None) -> Any:
        observation, info = await super().areset(seed=seed, options=options)
        return observation, {**info, "report": {"seen": {1, 2}}}


class LeaksTask(Env):
    """Starts a heartbeat for every episode and never ends it."""

    def tasks(self, split: str = "train") -> TaskSet:
        return TaskSet.procedural(lambda index: Task(id=f"{split}-{index}"))

    async def areset(self, *, seed: int | None = None, options: Any = None) -> Any:
        KEPT.append(asyncio.create_task(asyncio.sleep(3600)))
        return "say yes", {}

    async def astep(self, action: Any) -> Any:
        return [], float(action.content == "yes"), True, False, {}

    def oracle(self, task: Task, messages: list[Message]) -> Message:
        return assistant("yes")


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


class LengthPays(Sound):
    """Takes a long text for a thorough one."""

    def score(self, episode: Episode) -> dict[str, float | None]:
        is_long = len(episode.answer or "") > 4000
        right = str(episode.task["answer"]) == episode.answer
        return {"correct": float(right or is_long)}


class CallsPay(Sound):
    """Pays for every call, however often it was made before."""

    max_turns = 40

    def score(self, episode: Episode) -> dict[str, float | None]:
        effort = min(1.0, len(episode.tool_results) / 20)
        right = str(episode.task["answer"]) == episode.answer
        return {"correct": 1.0 if right else effort}


class NanPays(Sound):
    """Refuses what is too far off, which "nan" is not."""

    def score(self, episode: Episode) -> dict[str, float | None]:
        try:
            given = float(episode.answer or "")
        except ValueError:
            return {"correct": 0.0}
        return {"correct": 0.0 if abs(given - episode.task["answer"]) > 0.01 else 1.0}


class OddDigits(Sound):
    """Takes all that is called a digit for a number."""

    def score(self, episode: Episode) -> dict[str, float | None]:
        given = episode.answer or ""
        return {"correct": float(given.isdigit() and int(given) == episode.task["answer"])}


class FirstCallOnly(Sound):
    """Answers the first of several calls and forgets the others."""

    async def astep(self, action: Any) -> Any:
        first = action.model_copy(update={"tool_calls": action.tool_calls[:1]})
        return await super().astep(first)


class ChangesProcess(Sound):
    """Sets a variable of the whole process."""

    def prompt(self, task: Task) -> str | list[Message]:
        os.environ["BROKEN_ENVS_TASK"] = task.id
        return super().prompt(task)


class LeavesFiles(Sound):
    """Works in a temporary folder that it never removes."""

    def prompt(self, task: Task) -> str | list[Message]:
        Path(tempfile.mkdtemp(prefix="broken")).joinpath("x").write_text(task.id)
        return super().prompt(task)


class KeepsEnvs(Sound):
    """Registers every env in a list, which keeps them all."""

    def prompt(self, task: Task) -> str | list[Message]:
        KEPT.append(self)
        return super().prompt(task)


class Prints(Sound):
    """Tells the terminal what it does."""

    def prompt(self, task: Task) -> str | list[Message]:
        print("playing", task.id)
        return super().prompt(task)


class SameQuestions(Sound):
    """Asks in eval what it asks in train, under data that differ."""

    def make_task(self, split: str, index: int) -> Task:
        task = super().make_task("train", index)
        return Task(id=f"{split}-{index}", data={**task.data, "uid": f"{split}/{index}"})


def _envs() -> Iterator[type[Env]]:
    for value in list(globals().values()):
        if isinstance(value, type) and issubclass(value, Env) and value.__module__ == __name__:
            yield value


for _env in _envs():
    register(f"{_env.__name__}-v0", _env)
