"""Episodes of a demonstrator with chosen bad habits, for the warm start.

What the policy is warm-started on decides what reinforcement learning can find: the better
behaviour has to be there, but rarely. The demonstrator therefore mostly answers without a tool, and
is sometimes careless with it. It plays the real env, so that the policy starts with the very texts
it will meet.
"""

from dataclasses import dataclass, field
from random import Random
from typing import Any

from agentgym.envs.calculator.oracle import fill
from agentgym.envs.tool_env import ToolEnv
from agentgym.rendering.dialects.hermes import HermesDialect
from agentgym.trajectory import Task

Chat = list[dict[str, Any]]
_OPERATORS = "+-*"


@dataclass(frozen=True, slots=True, kw_only=True)
class Habits:
    """Probabilities of the demonstrator's faults."""

    memory: float = 0.0
    """Per episode: answer at once, wrongly, without a tool."""
    stop_early: float = 0.0
    """Per step: give what there is as the answer."""
    wrong_expression: float = 0.0
    """Per step: another operator or operand than asked for."""
    malformed: float = 0.0
    """Per step: a call that cannot be read."""
    wrong_format: float = 0.0
    """Per episode: the answer in another form than asked for."""
    max_errors: int = 2
    """Unreadable calls after which the demonstrator answers anyway."""


CLEAN = Habits()
NOISY = Habits(
    memory=0.67, stop_early=0.08, wrong_expression=0.08, malformed=0.06, wrong_format=0.05
)


async def demonstrate(env: ToolEnv, task: Task, *, habits: Habits, rng: Random) -> Chat:
    """A whole conversation, the prompt included; calls are in the text of the messages."""
    observation, _ = await env.areset(options={"task": task})
    chat = [message.to_chat() for message in observation]
    demonstrator = _Demonstrator(task, habits, rng)
    over = False
    while not over:
        text = demonstrator.speak()
        chat.append({"role": "assistant", "content": text})
        action = HermesDialect().parse(text, finish_reason="stop").to_message(turn=len(chat))
        observation, _, terminated, truncated, _ = await env.astep(action)
        over = terminated or truncated
        chat += [message.to_chat() for message in observation]
        if not over:
            demonstrator.hear(observation[-1].content)
    return chat


@dataclass(slots=True)
class _Demonstrator:
    """What one demonstrator has in mind."""

    task: Task
    habits: Habits
    rng: Random
    results: list[str] = field(default_factory=list)
    num_errors: int = 0
    call_is_readable: bool = True

    def speak(self) -> str:
        """The next message."""
        if not self._has_more_to_do() or self._lapses():
            return self._answer()
        expression = fill(self.task["steps"][len(self.results)], self.results)
        self.call_is_readable = self.rng.random() >= self.habits.malformed
        if not self.call_is_readable:
            return _break_call(_to_call(expression), self.rng)
        if self.rng.random() < self.habits.wrong_expression:
            expression = _alter(expression, self.rng)
        return _to_call(expression)

    def hear(self, reply: str) -> None:
        """What the tool said."""
        if self.call_is_readable:
            self.results.append(reply)
        else:
            self.num_errors += 1

    def _has_more_to_do(self) -> bool:
        has_steps = len(self.results) < len(self.task["steps"])
        return has_steps and self.num_errors < self.habits.max_errors

    def _lapses(self) -> bool:
        """Whether the demonstrator answers although there is more to do."""
        is_start = not self.results and not self.num_errors
        if is_start and self.rng.random() < self.habits.memory:
            return True
        return self.rng.random() < self.habits.stop_early

    def _answer(self) -> str:
        number = self.results[-1] if self.results else _guess(self.task["answer"], self.rng)
        if self.rng.random() < self.habits.wrong_format:
            return self.rng.choice((number, f"The result is {number}."))
        return f"Answer: {number}"


def _to_call(expression: str) -> str:
    body = f'{{"name": "calculator", "arguments": {{"expression": "{expression}"}}}}'
    return f"<tool_call>\n{body}\n</tool_call>"


def _break_call(call: str, rng: Random) -> str:
    """The call without its last quote, its last braces, or both."""
    return call.replace('"}}', rng.choice(("}}", '"', "")))


def _alter(expression: str, rng: Random) -> str:
    """The expression with another operator or another second operand."""
    where = next(i for i, char in enumerate(expression) if i and char in "+-*/")
    left, operator, right = expression[:where], expression[where], expression[where + 1 :]
    if rng.random() < 0.5:
        return left + rng.choice([other for other in _OPERATORS if other != operator]) + right
    return left + operator + _guess(right, rng)


def _guess(number: str, rng: Random) -> str:
    """Another positive number of about the same length."""
    length = max(1, len(number) + rng.choice((-1, 0, 0, 0, 1)))
    guess = str(rng.randrange(10 ** (length - 1), 10**length))
    return guess if guess != number else str(int(guess) + 1)
