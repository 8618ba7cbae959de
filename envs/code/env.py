"""Programming tasks: the policy writes a program, hidden tests say what it is worth.

Programs only ever run in a sandbox, and what they print or return is compared outside of it. Where
the sandbox itself fails, the trajectory is unscored.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from agentgym.envs.code.answers import fenced, has_form
from agentgym.envs.code.challenge import Challenge, challenge_of, example_of
from agentgym.envs.code.formats import read_file
from agentgym.envs.code.grading import extract_program
from agentgym.envs.code.problems import LEVELS, draw, problems_of_split
from agentgym.envs.code.scoring import NOTHING, Verdict, verdict_on
from agentgym.envs.code.testing import told
from agentgym.envs.levels import checked_levels, leveled_tasks
from agentgym.envs.taskset import TaskSet
from agentgym.envs.tool_env import Episode, ToolEnv
from agentgym.errors import ConfigError
from agentgym.messages import Message, assistant
from agentgym.registry import TOOLS
from agentgym.tools import Tool, tool
from agentgym.tools.python import python_tool
from agentgym.tools.sandbox.base import SandboxProvider, SandboxSpec, isolation_of
from agentgym.tools.sandbox.limits import Limits
from agentgym.trajectory import Task

TOOL_SETS = {
    "run_tests": (),
    "python": (),
    "shell": ("shell",),
    "files": ("list_files", "read_file", "write_file", "edit_file", "insert_lines"),
}
"""What can be handed to the policy, by name: tools of the registry, or the env's own."""
_GRADE, _SANDBOX = "grade", "sandbox"
_CPU_S = 1.0
_SYSTEM = (
    "Solve the task in Python. Your last message holds the whole program in one code block that "
    "begins with a line ```python and ends with a line ```, and nothing after it. It is then "
    "tested on further examples."
)


class CodeEnv(ToolEnv):
    """Programs by hidden tests; rewards `passed` (1), and `public`, `runs` and `format` (0).

    Args:
        levels: what to ask, see `problems.LEVELS`; they take turns.
        tools: some of `TOOL_SETS`.
        partial: whether `passed` is the share of hidden tests passed, or 1.0 for all of them, and
            of the public ones, and else 0.0.
        file: problems to ask instead, a JSON, JSON-lines or parquet file in one of the common
            formats (see `formats.FORMATS`); one in five is held out.
        packages: installed distributions that programs may import, such as numpy.
        limits: by names of `Limits`, of one test or one call of a tool; 1 s of processor time
            unless `cpu_s` says otherwise.

    Rows of a training data set may be in those formats too.

    Raises:
        ConfigError: a level, a tool or a limit that does not exist, or a file that cannot be used.
    """

    system_prompt = _SYSTEM
    reward_weights = {"passed": 1.0, "public": 0.0, "runs": 0.0, "format": 0.0}
    max_turns = 10

    def __init__(
        self,
        levels: Sequence[int] = (1, 2, 3),
        *,
        tools: Sequence[str] = ("python", "run_tests"),
        partial: bool = True,
        file: str | None = None,
        packages: Sequence[str] = (),
        limits: Mapping[str, Any] | None = None,
    ) -> None:
        self.levels = checked_levels(levels, LEVELS)
        self.partial = partial
        self.sandbox = SandboxSpec(limits=_limits(limits or {}), packages=tuple(packages))
        tools = [tools] if isinstance(tools, str) else tools
        self.tools = tuple(each for name in tools for each in self._tools_named(name))
        self._problems = None if file is None else read_file(file)

    def _tools_named(self, name: str) -> tuple[Tool, ...]:
        if name not in TOOL_SETS:
            raise ConfigError(f"tools must be some of {list(TOOL_SETS)}, got {name!r}")
        if name == "run_tests":
            return (tool(timeout_s=math.inf, parallel=False)(self.run_tests),)
        if name == "python":
            assert self.sandbox is not None
            return (python_tool(self.sandbox.packages),)
        return tuple(TOOLS.get(each) for each in TOOL_SETS[name])

    async def run_tests(self, program: str) -> str:
        """Run the examples of the task on a program and see which are right.

        Args:
            program: Python source, the whole of it.
        """
        challenge = challenge_of(self.episode.task)
        graded = await self._verdict_on(program, challenge, hidden=False)
        return told(challenge, graded.public)

    def tasks(self, split: str = "train") -> TaskSet:
        """The file's problems, or endless ones by index; none is in both splits."""
        if self._problems is not None:
            return problems_of_split(self._problems, split)
        return leveled_tasks(draw, split=split, levels=self.levels)

    def prompt(self, task: Task) -> str:
        challenge = challenge_of(task)
        examples = [example_of(test) for test in challenge.public]
        shown = ["Examples:", *(f"- {example}" for example in examples)] if examples else []
        if challenge.starter and challenge.starter.strip() not in challenge.statement:
            shown += ["Begin from this code:", fenced(challenge.starter)]
        return "\n".join([challenge.statement, *shown])

    async def score(self, episode: Episode) -> dict[str, float | None]:
        """`passed`: of the hidden tests; `public`: of the shown ones; `runs`: whether the program
        comes to its end on those; `format`: one block of code and nothing after it."""
        challenge = challenge_of(episode.task)
        verdict = await self._verdict_on(extract_program(episode.answer), challenge)
        episode.state[_GRADE] = verdict.report
        rewards = verdict.rewards(partial=self.partial)
        return {**rewards, "format": float(has_form(episode.answer))}

    async def _verdict_on(
        self, program: str | None, challenge: Challenge, *, hidden: bool = True
    ) -> Verdict:
        if program is None:
            return NOTHING
        assert self.sandbox is not None
        provider = await self._provider()
        self.episode.state[_SANDBOX] = isolation_of(provider)
        return await verdict_on(program, challenge, provider, self.sandbox, hidden=hidden)

    async def _provider(self) -> SandboxProvider:
        if self.sandbox_provider is not None:
            return self.sandbox_provider
        from agentgym.tools.sandbox.shared import shared_provider

        return await shared_provider()

    def report(self) -> dict[str, Any]:
        """Where the answer was tested, and how that went."""
        state = self.episode.state
        return super().report() | {key: state[key] for key in (_SANDBOX, _GRADE) if key in state}

    def oracle(self, task: Task, messages: Sequence[Message]) -> Message:
        """The task's own solution.

        Raises:
            ConfigError: it has none.
        """
        solution = challenge_of(task).solution
        if not solution:
            raise ConfigError(f"task {task.id!r} has no solution, so there is no oracle for it")
        return assistant(fenced(solution))


def _limits(given: Mapping[str, Any]) -> Limits:
    known = [field.name for field in fields(Limits)]
    if not isinstance(given, Mapping):
        raise ConfigError(f"limits must be a mapping, such as {{'cpu_s': 4}}, got {given!r}")
    for name in given.keys() - set(known):
        raise ConfigError(f"limits has no {name!r}; known: {', '.join(known)}")
    for name, value in given.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ConfigError(f"limits: {name}={value!r} must be a number")
    return Limits(**{"cpu_s": _CPU_S, **given})
