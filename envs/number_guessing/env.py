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
    "I think of a whole number from {low} to {high}. You have {tries} guesses. After each guess I "
    "say whether my number is higher or lower. Send one guess per message, as 'Answer: ' and the "
    "number. Any other message counts as a guess too. What is your first guess?"
)
_NUMBER = re.compile(r"\d{1,9}")


class NumberGuessingEnv(TextEnv):
    """Higher or lower; rewards `found` (0.5) and `speed` (0.5).

    Args:
        levels: sizes of the range, see `tasks.LEVELS`; they take turns.

    Raises:
        ConfigError: a level that does not exist.
    """

    reward_weights = {"found": 0.5, "speed": 0.5}

    def __init__(self, levels: Sequence[int] = (1, 2, 3)) -> None:
        self.levels = checked_levels(levels, LEVELS)

    def tasks(self, split: str = "train") -> TaskSet:
        """Endless games by index; no range with the same number is in both splits."""
        return leveled_tasks(draw, split=split, levels=self.levels)

    def start(self, task: Task) -> str:
        self._task, self._guesses, self._found = task, 0, False
        return _PROMPT.format_map(task.data)

    def respond(self, text: str) -> TextStep:
        self._guesses += 1
        reply = self._judge(read_answer(text, _NUMBER))
        left = self._task["tries"] - self._guesses
        return TextStep(f"{reply} Guesses left: {left}.", terminated=self._found or not left)

    def _judge(self, guess: str | None) -> str:
        low, high, secret = (self._task[key] for key in ("low", "high", "secret"))
        if guess is None or not low <= int(guess) <= high:
            return f"That is no guess: send 'Answer: ' and one number from {low} to {high}."
        self._found = int(guess) == secret
        if self._found:
            return "Right."
        return f"My number is {'higher' if int(guess) < secret else 'lower'} than {int(guess)}."

    def score(self) -> dict[str, float | None]:
        """`found`: whether it was; `speed`: in how few guesses."""
        par, tries = self._task["par"], self._task["tries"]
        fast = speed(self._guesses, par=par, tries=tries) if self._found else 0.0
        return {"found": float(self._found), "speed": fast}

    def oracle(self, task: Task, messages: Sequence[Message]) -> Message:
        """What a perfect policy would say next."""
        return oracle(task, messages)
