"""Every data set of reasoning-gym as an env: one question, one answer, its own score.

The library runs in processes of its own, because some data sets seed global generators and some
grade an answer by evaluating it; there they are handed a reader of values and formulas, so that no
answer runs as code. Tasks are numbered: the number is the seed.
"""

import json
import os
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from typing import Any

from agentgym.envs.adapters.process import HostError, HostPool
from agentgym.envs.taskset import TaskSet
from agentgym.envs.tool_env import Episode, ToolEnv
from agentgym.errors import (
    ConfigError,
    EnvError,
    MissingExtraError,
    NotRegisteredError,
    RewardError,
)
from agentgym.messages import Message, assistant
from agentgym.trajectory import Task

REFUSED = {
    "composite": "it only mixes other data sets",
    "game_of_life_halting": "its grader pays for every answer that is not empty",
}
"""Data sets that nothing can be learned from, and why."""
WITHOUT_ORACLE = ("boxnet", "rush_hour")
"""Data sets that grade answers and know none."""
_FIRST_SEED = {"train": 0, "eval": 2**31}
_SYSTEM = (
    "Solve the problem. Give the final answer between <answer> and </answer>, exactly in the form "
    "that is asked for, and nothing else between them."
)
_ANSWER = re.compile(r"<answer>((?:(?!<answer>).)*?)</answer>", re.DOTALL)
_pool = HostPool("reasoning-gym", size=min(4, os.cpu_count() or 1), idle_s=60.0)


class ReasoningGymEnv(ToolEnv):
    """A data set of reasoning-gym; reward `score`, its own, from 0 to 1.

    Args:
        name: of the data set.
        config: its settings, such as `{"max_animals": 5}`.
        timeout_s: longest a question may take to make, or an answer to grade.

    Raises:
        NotRegisteredError: there is no such data set.
        ConfigError: nothing can be learned from it, or it refuses its settings.
        MissingExtraError: reasoning-gym is not installed.
    """

    system_prompt = _SYSTEM

    def __init__(
        self,
        name: str = "",
        *,
        config: Mapping[str, Any] | None = None,
        timeout_s: float = 60.0,
    ) -> None:
        self.name = name
        self.config = dict(config or {})
        self.timeout_s = timeout_s
        _check(name, json.dumps(self.config, sort_keys=True))

    def tasks(self, split: str = "train") -> TaskSet:
        """Endless questions by index; the seeds of the splits differ.

        Raises:
            ConfigError: the split is neither "train" nor "eval".
        """
        if split not in _FIRST_SEED:
            raise ConfigError(f"split must be one of {list(_FIRST_SEED)}, got {split!r}")
        return TaskSet.procedural(lambda index: self._make_task(split, index))

    def prompt(self, task: Task) -> str:
        return str(task["question"])

    def oracle(self, task: Task, messages: Sequence[Message]) -> Message:
        """The answer that the data set knows.

        Raises:
            ConfigError: it knows none.
        """
        if task["answer"] is None:
            raise ConfigError(f"reasoning-gym/{self.name} knows no answers, so it has no oracle")
        return assistant(f"<answer>{task['answer']}</answer>")

    def score(self, episode: Episode) -> dict[str, float | None]:
        """What the data set's grader says; `None` where it raises, for then nobody knows.

        Raises:
            RewardError: the grader did not end, or knows another question under this number.
        """
        task = episode.task
        arguments = {
            "name": self.name,
            "config": self.config,
            "seed": task["seed"],
            "question": task["question"],
            "answer": read_answer(episode.answer),
        }
        try:
            score = _pool.call("score", arguments, timeout_s=self.timeout_s)
        except (HostError, EnvError) as error:
            raise RewardError(f"reasoning-gym/{self.name}: score: {error}") from error
        return {"score": score}

    def _make_task(self, split: str, index: int) -> Task:
        seed = _FIRST_SEED[split] + index
        arguments = {"name": self.name, "config": self.config, "seed": seed}
        try:
            asked = _pool.call("ask", arguments, timeout_s=self.timeout_s)
        except HostError as error:
            raise EnvError(f"reasoning-gym/{self.name}: task {index}: {error}") from error
        return Task(id=f"{split}-{index}", data={"seed": seed, **asked})


def read_answer(text: str | None) -> str | None:
    """What stands between the last pair of tags; without any, the whole text."""
    if text is None:
        return None
    tagged = _ANSWER.findall(text)
    return (tagged[-1] if tagged else text).strip()


@cache
def known_names() -> tuple[str, ...]:
    """Every data set that can be played.

    Raises:
        MissingExtraError: reasoning-gym is not installed.
    """
    if find_spec("reasoning_gym") is None:
        raise MissingExtraError("reasoning-gym", "reasoning-gym")
    found = _pool.call("names", {}, timeout_s=120.0)
    return tuple(name for name in found if name not in REFUSED)


@cache
def _check(name: str, config: str) -> None:
    if name in REFUSED:
        raise ConfigError(f"reasoning-gym/{name} cannot be played: {REFUSED[name]}")
    if name not in known_names():
        raise NotRegisteredError("data set of reasoning-gym", name, known_names())
    reserved = {"seed", "size"} & json.loads(config).keys()
    if reserved:
        raise ConfigError(f"reasoning-gym/{name}: config must leave out {sorted(reserved)[0]!r}")
    try:
        _pool.call("probe", {"name": name, "config": json.loads(config)}, timeout_s=120.0)
    except HostError as error:
        raise ConfigError(f"reasoning-gym/{name}: config {config} is refused: {error}") from error
