"""Find a hidden number from `higher` and `lower`: what was heard decides what to say next."""

import re
from collections.abc import Sequence

from agentgym.envs.answers import read_answer
from agentgym.envs.levels import checked_levels, leveled_tasks
from agentgym.envs.number_guessing.oracle import oracle
from agentgym.envs.number_guessing.scoring import speed
from agentgym.envs.number_guessing.tasks import LEVELS, draw
from agentgym.envs.taskset import TaskSet
from agentgym.envs.text_env import TextEnv, TextStep
from agentgym.messages import Message
from agentgym.trajectory import Task

_PROMPT = (
    "Guess my whole number from {low} to {high} in {tries} tries. I say if it is higher or lower. "
    "Each message is one try: 'Answer: ' and a number."
)
_NUMBER = re.compile(r"\d{1,9}")


class NumberGuessingEnv(TextEnv):
    """Higher or lower; rewards `found` (0.4), `speed` (0.4) and `sensible` (0.2).

    Args:
        levels: sizes of the range, see `tasks.LEVELS`; they take turns.

    Raises:
        ConfigError: a level that does not exist.
    """

    reward_weights = {"found": 0.4, "speed": 0.4, "sensible": 0.2}

    def __init__(self, levels: Sequence[int] = (1, 2, 3)) -> None:
        self.levels = checked_levels(levels, LEVELS)

    def tasks(self, split: str = "train") -> TaskSet:
        """Endless games by index; no range with the same number is in both splits."""
        return leveled_tasks(draw, split=split, levels=self.levels)

    def start(self, task: Task) -> str:
        self._task = task
        self._possible = range(task["low"], task["high"] + 1)
        self._used = self._sensible = 0
        self._found = False
        return _PROMPT.format_map(task.data)

    def respond(self, text: str) -> TextStep:
        self._used += 1
        answer = read_answer(text, _NUMBER)
        reply = self._judge(None if answer is None else int(answer))
        left = self._task["tries"] - self._used
        return TextStep(f"{reply} {left} left.", terminated=self._found or not left)

    def _judge(self, guess: int | None) -> str:
        low, high, secret = (self._task[key] for key in ("low", "high", "secret"))
        if guess is None or not low <= guess <= high:
            return f"No number from {low} to {high}."
        self._sensible += guess in self._possible
        self._found = guess == secret
        if self._found:
            return "Right."
        is_higher = guess < secret
        first, end = self._possible.start, self._possible.stop
        self._possible = (
            range(max(first, guess + 1), end) if is_higher else range(first, min(end, guess))
        )
        return "Higher." if is_higher else "Lower."

    def score(self) -> dict[str, float | None]:
        """`found`; `speed`: in few tries; `sensible`: share of tries that could have been right."""
        par, tries = self._task["par"], self._task["tries"]
        fast = speed(self._used, par=par, tries=tries) if self._found else 0.0
        sensible = self._sensible / (self._used if self._found else tries)
        return {"found": float(self._found), "speed": fast, "sensible": sensible}

    def oracle(self, task: Task, messages: Sequence[Message]) -> Message:
        """What a perfect policy would say next."""
        return oracle(task, messages)
