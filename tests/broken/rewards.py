"""Envs that pay wrongly: too much, to anybody, for nothing, or what is no number."""

from typing import Any

import numpy as np
from agentgym_broken_sound import Sound, Talks

from agentgym.envs import Episode, Task
from agentgym.messages import Message, assistant


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


class PaysTwice(Talks):
    """Its step is set after the class is made, so nothing stands around it."""


async def _pay(self: Talks, action: Message) -> Any:
    reward = float(action.content == str(self.task["answer"]))
    return [], reward, True, False, {}


PaysTwice.astep = _pay  # type: ignore[method-assign,assignment]
PaysTwice.step = Talks.step  # type: ignore[method-assign]


class NoOracle(Sound):
    """Its oracle has nothing to say."""

    def oracle(self, task: Task, messages: list[Message]) -> Any:
        return None


class NoRange(Sound):
    """Declares no range."""

    reward_range = None  # type: ignore[assignment]


class NumpyReward(Talks):
    """Computes rewards with NumPy."""

    def step(self, action: Any) -> Any:
        return [], np.float64(action.content == str(self.task["answer"])), True, False, {}


class Fragile(Talks):
    """Fails on words where it expects a number."""

    def step(self, action: Any) -> Any:
        reward = float(int(action.content or 0) == self.task["answer"])
        return [], reward, True, False, {}


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
