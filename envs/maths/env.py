"""Mathematics with verified answers: made-up problems, or any with questions and answers.

The reward is the grader's, which compares meaning and not spelling. A calculator may be used and
need not be.
"""

from collections.abc import Sequence

from agentgym.envs.levels import checked_levels, leveled_tasks
from agentgym.envs.maths.grading import require
from agentgym.envs.maths.oracle import oracle
from agentgym.envs.maths.rows import Columns, check_columns, read_rows, rows_of_split
from agentgym.envs.maths.scoring import has_form, is_correct
from agentgym.envs.maths.tasks import LEVELS, draw
from agentgym.envs.taskset import TaskSet
from agentgym.envs.tool_env import Episode, ToolEnv
from agentgym.messages import Message
from agentgym.tools.calculator import calculator as calculator_tool
from agentgym.trajectory import Task

_SYSTEM = (
    "Solve the problem. End with 'Answer: ' and the result alone, worked out, with fractions in "
    "lowest terms."
)


class MathsEnv(ToolEnv):
    """Problems with verified answers; rewards `correct` (0.9) and `format` (0.1).

    Args:
        levels: what to ask, see `tasks.LEVELS`; they take turns.
        calculator: whether there is a calculator.
        file: JSON lines to ask instead; one in five is held out.
        question: column of the question, also of a training data set.
        answer: column of the answer, which may be a whole solution.

    Raises:
        ConfigError: a level that does not exist, or a file that cannot be used.
        MissingExtraError: the extra `math` is not installed.
    """

    system_prompt = _SYSTEM
    reward_weights = {"correct": 0.9, "format": 0.1}
    max_turns = 10

    def __init__(
        self,
        levels: Sequence[int] = (1, 2, 3),
        *,
        calculator: bool = True,
        file: str | None = None,
        question: str = "question",
        answer: str = "answer",
    ) -> None:
        require()
        self.levels = checked_levels(levels, LEVELS)
        self.tools = (calculator_tool,) if calculator else ()
        self.columns = Columns(question, answer)
        self._rows = None if file is None else read_rows(file, self.columns)

    def tasks(self, split: str = "train") -> TaskSet:
        """The file's problems, or endless ones by index; no problem is in both splits."""
        if self._rows is not None:
            return rows_of_split(self._rows, split, self.columns)
        return leveled_tasks(draw, split=split, levels=self.levels)

    def prompt(self, task: Task) -> str:
        check_columns(task.data, f"task {task.id!r}", self._columns_of(task))
        return str(task[self._columns_of(task).question])

    def _columns_of(self, task: Task) -> Columns:
        """Made-up problems have names of their own."""
        return Columns("question", "answer") if task.data.get("exact") is True else self.columns

    def score(self, episode: Episode) -> dict[str, float | None]:
        """`correct`: it means the same as the right answer; `format`: the last line says it."""
        gold = str(episode.task[self._columns_of(episode.task).answer])
        exact = episode.task.data.get("exact") is True
        return {
            "correct": float(is_correct(gold, episode.answer, exact=exact)),
            "format": float(has_form(gold, episode.answer, exact=exact)),
        }

    def oracle(self, task: Task, messages: Sequence[Message]) -> Message:
        """What a perfect policy would say next."""
        return oracle(str(task[self._columns_of(task).answer]), messages)
