"""Find a hidden word from marks on the letters of each guess."""

import re
from collections.abc import Sequence

from agentgym.envs.answers import read_answer
from agentgym.envs.levels import checked_levels, leveled_tasks
from agentgym.envs.taskset import TaskSet
from agentgym.envs.text_env import TextEnv, TextStep
from agentgym.envs.word_guessing.feedback import feedback
from agentgym.envs.word_guessing.oracle import oracle
from agentgym.envs.word_guessing.scoring import letters
from agentgym.envs.word_guessing.tasks import LEVELS, draw
from agentgym.messages import Message
from agentgym.trajectory import Task

_PROMPT = (
    "I think of an English word of five letters. You have {tries} guesses. Under each letter of a "
    "guess I mark: G the letter is in this place, Y it is in the word but in another place, - it "
    "is not in the word, or not so often. Send one guess per message, as 'Answer: ' and any five "
    "letters. Any other message counts as a guess too."
)
_CANDIDATES = " My word is one of: {}."
_FORM = "That is no guess: send 'Answer: ' and five letters."
_WORD = re.compile(r"[A-Za-z]{5}")


class WordGuessingEnv(TextEnv):
    """Words from marks; rewards `found` (0.9) and `letters` (0.1).

    Args:
        levels: how much is told, see `tasks.LEVELS`; they take turns.

    Raises:
        ConfigError: a level that does not exist.
    """

    reward_weights = {"found": 0.9, "letters": 0.1}

    def __init__(self, levels: Sequence[int] = (1, 2, 3)) -> None:
        self.levels = checked_levels(levels, LEVELS)

    def tasks(self, split: str = "train") -> TaskSet:
        """Endless games by index; no word is hidden in both splits."""
        return leveled_tasks(draw, split=split, levels=self.levels)

    def start(self, task: Task) -> str:
        self._secret: str = task["secret"]
        self._left: int = task["tries"]
        self._guesses: list[str] = []
        candidates: list[str] = task["candidates"]
        told = _CANDIDATES.format(", ".join(candidates)) if candidates else ""
        return _PROMPT.format(tries=self._left) + told

    def respond(self, text: str) -> TextStep:
        self._left -= 1
        said = self._judge(read_answer(text, _WORD))
        over = self._secret in self._guesses or not self._left
        return TextStep(f"{said}\nGuesses left: {self._left}.", terminated=over)

    def _judge(self, answer: str | None) -> str:
        if answer is None:
            return _FORM
        guess = answer.lower()
        self._guesses.append(guess)
        return f"{' '.join(guess)}\n{' '.join(feedback(guess, self._secret))}"

    def score(self) -> dict[str, float | None]:
        """`found`: whether the word was; `letters`: how much of it the best guess had in place."""
        return {
            "found": float(self._secret in self._guesses),
            "letters": letters(self._guesses, self._secret),
        }

    def oracle(self, task: Task, messages: Sequence[Message]) -> Message:
        """What a perfect policy would say next."""
        return oracle(task, messages)
