"""Cross a frozen lake without falling in: the map is in the text, one move per message."""

import re
from collections.abc import Sequence

from agentgym.envs.answers import read_answer
from agentgym.envs.grid.maps import HOLE, MOVES, step_to
from agentgym.envs.grid.oracle import oracle
from agentgym.envs.grid.scoring import has_arrived
from agentgym.envs.grid.tasks import LEVELS, draw
from agentgym.envs.grid.view import draw_view
from agentgym.envs.levels import checked_levels, leveled_tasks
from agentgym.envs.taskset import TaskSet
from agentgym.envs.text_env import TextEnv, TextStep
from agentgym.messages import Message
from agentgym.trajectory import Task

_PROMPT = (
    "You are P on a map of ice. Get to the goal G in at most {moves} moves; . is safe, a hole H "
    "ends the game. Send one move per message, as 'Answer: ' and up, down, left or right. At the "
    "edge of the map you stay where you are. Any other message costs a move too.{slippery}"
)
_SLIPPERY = " The ice is slippery: two times out of three you slide sideways instead."
_MOVE = re.compile("|".join(MOVES), re.IGNORECASE)
_SIDEWAYS = {
    "up": ("left", "right"),
    "down": ("left", "right"),
    "left": ("up", "down"),
    "right": ("up", "down"),
}


class GridEnv(TextEnv):
    """A walk over ice between holes; the one reward is `goal`.

    Args:
        levels: sizes of the map, see `tasks.LEVELS`; they take turns.
        slippery: each move goes as meant or to either side with probability 1/3 each, as on
            Gymnasium's FrozenLake; then no policy always arrives.

    Raises:
        ConfigError: a level that does not exist.
    """

    reward_weights = {"goal": 1.0}

    def __init__(self, levels: Sequence[int] = (1, 2, 3), *, slippery: bool = False) -> None:
        self.levels = checked_levels(levels, LEVELS)
        self.slippery = slippery

    def tasks(self, split: str = "train") -> TaskSet:
        """Endless maps by index; no map with the same start is in both splits."""
        return leveled_tasks(draw, split=split, levels=self.levels)

    def start(self, task: Task) -> str:
        self._rows: list[str] = task["rows"]
        row, column = task["start"]
        self._player = (row, column)
        self._left: int = task["moves"]
        rules = _PROMPT.format(moves=self._left, slippery=_SLIPPERY if self.slippery else "")
        return f"{rules}\n\n{draw_view(self._rows, self._player)}"

    def respond(self, text: str) -> TextStep:
        self._left -= 1
        said = self._move(read_answer(text, _MOVE))
        row, column = self._player
        fell = self._rows[row][column] == HOLE
        over = fell or has_arrived(self._rows, self._player) or not self._left
        view = draw_view(self._rows, self._player)
        return TextStep(f"{said} Moves left: {self._left}.\n\n{view}", terminated=over)

    def _move(self, answer: str | None) -> str:
        if answer is None:
            return "That is no move: send 'Answer: ' and up, down, left or right."
        move = self._slide(answer.lower())
        before, self._player = self._player, step_to(self._rows, self._player, move)
        return "You are at the edge." if self._player == before else f"You moved {move}."

    def _slide(self, meant: str) -> str:
        if not self.slippery:
            return meant
        return (meant, *_SIDEWAYS[meant])[int(self.np_random.integers(3))]

    def score(self) -> dict[str, float | None]:
        """`goal`: whether the player is there."""
        return {"goal": float(has_arrived(self._rows, self._player))}

    def oracle(self, task: Task, messages: Sequence[Message]) -> Message:
        """What a perfect policy would say next."""
        return oracle(task, messages)
