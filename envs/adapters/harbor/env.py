"""Plays Harbor's task directories: the instruction, tools over a sandbox, then the tests."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from agentgym.envs.adapters.harbor.dockerfile import UnsupportedTaskError
from agentgym.envs.adapters.harbor.folder import HarborTask, read_task, task_folders
from agentgym.envs.adapters.harbor.places import moved, moved_file
from agentgym.envs.adapters.harbor.verifier import File, Verdict, collect, verify, write_files
from agentgym.envs.taskset import TaskSet
from agentgym.envs.tool_env import Episode, ToolEnv
from agentgym.errors import ConfigError
from agentgym.messages import Message, assistant
from agentgym.tools.files import files
from agentgym.tools.python import python
from agentgym.tools.sandbox.base import Sandbox, SandboxSpec
from agentgym.tools.sandbox.lazy import LazySandbox
from agentgym.tools.sandbox.limits import Limits
from agentgym.tools.shell import shell
from agentgym.trajectory import Task

_SYSTEM = (
    "Do the task with the tools. They work in one directory, to which all paths are relative; "
    "there is no network. When you are done, say so in a message without a tool call."
)
_LIMITS = Limits(cpu_s=30.0, memory_mb=1024, tree_memory_mb=1536, disk_mb=256, file_mb=64)
_SOLUTION = ".solution"


class HarborEnv(ToolEnv):
    """A task directory, or a folder of them; reward `reward`, what its tests write, from 0 to 1.

    Args:
        name: path of the directory, where it has no slash in it.
        path: path of the directory.
        eval_path: of held-out tasks; Harbor knows no splits, so the same ones if left out.
        limits: over those of a call: `{"cpu_s": 60}`.
        max_verifier_s: longest the tests may take, if the task allows more.

    Raises:
        ConfigError: there is no task, or none that can be played without a container.
    """

    tools = (shell, python, *files)
    system_prompt = _SYSTEM
    max_turns = 50
    sandbox: SandboxSpec

    def __init__(
        self,
        name: str = "",
        *,
        path: str = "",
        eval_path: str = "",
        limits: Mapping[str, Any] | None = None,
        max_verifier_s: float = 120.0,
    ) -> None:
        if not (path or name):
            raise ConfigError("harbor needs the path of a task: --env-args '{\"path\": ...}'")
        self.sandbox = SandboxSpec(limits=replace(_LIMITS, **dict(limits or {})))
        self.max_verifier_s = max_verifier_s
        self.verdict: Verdict | None = None
        self._found = {"train": survey(path or name), "eval": survey(eval_path or path or name)}

    @property
    def unsupported(self) -> dict[str, str]:
        """Why each of the other tasks cannot be played, by folder."""
        return {**self._found["train"].unsupported, **self._found["eval"].unsupported}

    def tasks(self, split: str = "train") -> TaskSet:
        """All that can be played.

        Raises:
            ConfigError: the split is neither "train" nor "eval".
        """
        if split not in self._found:
            raise ConfigError(f"split must be one of {list(self._found)}, got {split!r}")
        folders = self._found[split].playable
        return TaskSet(lambda index: _task(folders[index]), len(folders))

    def prompt(self, task: Task) -> str:
        self.verdict = None
        harbor = _read(task)
        return moved(harbor.instruction, {str(harbor.image.workdir): "."}).strip()

    async def prepare_sandbox(self, sandbox: Sandbox, task: Task) -> None:
        """Copy what the Dockerfile copies."""
        copies = _read(task).image.copies
        await write_files(
            sandbox,
            {name: File(file.read_bytes(), _is_program(file)) for name, file in copies.items()},
        )

    async def score(self, episode: Episode) -> dict[str, float | None]:
        """Run the tests on what is in the working directory now."""
        self.verdict = await self._verify(_read(episode.task), episode)
        return {"reward": self.verdict.reward}

    def report(self) -> dict[str, Any]:
        """Beside the sandbox, what the tests said."""
        verdict = self.verdict
        said = {} if verdict is None else {"harbor": verdict._asdict()}
        return super().report() | said

    def oracle(self, task: Task, messages: Sequence[Message]) -> Message:
        """Run the task's own solution; the first turn asks where the working directory is.

        Raises:
            ConfigError: it has none.
        """
        harbor = _read(task)
        if "solve.sh" not in harbor.solution:
            raise ConfigError(f"harbor: task {task.id!r} has no solution/solve.sh")
        answers = [message.content for message in messages if message.role == "tool"]
        if not answers:
            return assistant("", ("shell", {"command": "pwd -P"}))
        return _solving(harbor, answers[0].strip()) if len(answers) == 1 else assistant("Done.")

    def sandbox_specs(self) -> tuple[SandboxSpec, ...]:
        """That of the agent and those of the tests."""
        folders = {*self._found["train"].playable, *self._found["eval"].playable}
        specs = [self._spec_of_tests(_read_once(str(folder))) for folder in sorted(folders)]
        return tuple(dict.fromkeys((*super().sandbox_specs(), *specs)))

    def _spec_of_tests(self, task: HarborTask) -> SandboxSpec:
        """Of the sandbox of a task's tests."""
        return replace(self.sandbox, packages=(*self.sandbox.packages, *task.packages))

    async def _verify(self, task: HarborTask, episode: Episode) -> Verdict:
        limits = self.sandbox.limits
        left = await collect(await episode.sandbox.get(), limits)
        if left is None:
            return Verdict(0.0, {}, "the working directory has too many files to be tested")
        seconds = min(task.verifier_timeout_s, self.max_verifier_s)
        allowed = replace(limits, cpu_s=seconds, tree_cpu_s=2 * seconds, wall_s=seconds)
        spec = self._spec_of_tests(task)
        async with LazySandbox(spec, provider=self.sandbox_provider) as fresh:
            return await verify(task, left, await fresh.get(), allowed)


class Found(NamedTuple):
    """Task directories at a path."""

    playable: tuple[Path, ...]
    unsupported: Mapping[str, str]
    """Why the others cannot be played, by folder."""


@cache
def survey(path: str) -> Found:
    """What can be played of a path; warns of what cannot.

    Raises:
        ConfigError: nothing can be, or a task is malformed.
    """
    playable: list[Path] = []
    unsupported: dict[str, str] = {}
    for folder in task_folders(Path(path).expanduser().resolve()):
        try:
            read_task(folder)
        except UnsupportedTaskError as error:
            unsupported[folder.name] = str(error)
        else:
            playable.append(folder)
    reasons = "; ".join(f"{name}: {why}" for name, why in unsupported.items())
    if not playable:
        raise ConfigError(f"harbor: no task of {path} runs without a container: {reasons}")
    if reasons:
        warnings.warn(f"harbor: left out: {reasons}", stacklevel=2)
    return Found(tuple(playable), unsupported)


def _solving(harbor: HarborTask, here: str) -> Message:
    places = {str(harbor.image.workdir): here, "/solution": f"{here}/{_SOLUTION}"}
    texts = {path: moved_file(data, places).decode() for path, data in harbor.solution.items()}
    writes = [
        ("write_file", {"path": f"{_SOLUTION}/{path}", "content": text})
        for path, text in texts.items()
    ]
    run = f"bash {_SOLUTION}/solve.sh; rm -rf {_SOLUTION}"
    return assistant("", *writes, ("shell", {"command": run}))


def _task(folder: Path) -> Task:
    return Task(id=folder.name, data={"folder": str(folder)})


def _read(task: Task) -> HarborTask:
    return _read_once(task["folder"])


@lru_cache(maxsize=64)
def _read_once(folder: str) -> HarborTask:
    return read_task(Path(folder))


def _is_program(file: Path) -> bool:
    return bool(file.stat().st_mode & 0o100)
