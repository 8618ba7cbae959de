"""Programs of the cases, run in a sandbox of this machine: the best one, unless a level is named.

A program runs as a script of its own; `language: "sh"` makes it a shell command, and files in the
working directory make it a cell beside them. What a policy would be told comes from the tool.
"""

import ast
import asyncio
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from local_kit import descendants, provider

from agentgym.errors import SandboxError
from agentgym.tools import ToolContext
from agentgym.tools.python import python
from agentgym.tools.sandbox.base import (
    Call,
    ExecResult,
    Level,
    Outcome,
    Sandbox,
    SandboxProvider,
    SandboxSpec,
    Script,
)
from agentgym.tools.sandbox.lazy import LazySandbox
from agentgym.tools.sandbox.limits import Limits

_MARK_ROOM = 64
_RUNS_PER_SANDBOX = 10
_SETTLE_S = 2.0
_CHANCES = 3
_CANCEL_S = 0.3
_QUICK_S = 1.0
_ISOLATION = {Level.NONE: "none", Level.LANDLOCK: "landlock", Level.NAMESPACES: "namespaces"}


def run(case: Mapping[str, Any]) -> Mapping[str, Any]:
    """What came of the program, and what it left on this machine."""
    return run_at(case, None)


def run_at(case: Mapping[str, Any], level: str | None) -> Mapping[str, Any]:
    """The same at a level, by its name in `local_kit.launchers`."""
    outside = _absolute_paths(str(case["code"]))
    existed = {path for path in outside if os.path.exists(path)}
    with _environment(case.get("host_env") or {}), _own_temporary_folder() as folder:
        before = _State.now(folder)
        said = _play_in_peace(case, provider(level))
        said |= before.left(folder)
    said["host_file_exists"] = any(os.path.exists(path) for path in outside - existed)
    said["declared_isolation"] = _ISOLATION[provider(level).level]
    return said


def _play_in_peace(case: Mapping[str, Any], source: SandboxProvider) -> dict[str, Any]:
    """A machine that is too busy says nothing of the program: it is given other chances."""
    for _ in range(_CHANCES - 1):
        with suppress(SandboxError):
            return asyncio.run(_play(case, source))
    return asyncio.run(_play(case, source))


async def _play(case: Mapping[str, Any], source: SandboxProvider) -> dict[str, Any]:
    program = _Program.of(case)
    runs, result, seconds, children = 0, None, 0.0, 0
    while runs < program.repeat:
        async with LazySandbox(program.spec, provider=source) as handle:
            sandbox = await handle.get()
            idle = len(descendants())
            for _ in range(min(_RUNS_PER_SANDBOX, program.repeat - runs)):
                start = time.perf_counter()
                result = await program.run(sandbox)
                elapsed = time.perf_counter() - start
                seconds = max(seconds, _undisturbed_s(elapsed, result, program.spec.limits))
                runs += 1
            children = max(children, len(descendants()) - idle)
            said = await _around(program, handle, result) if runs >= program.repeat else {}
    limit = int(case.get("output_limit_chars", program.spec.limits.output_bytes))
    return _told(result, limit) | said | {"wall_seconds": seconds, "children_left": children}


def _undisturbed_s(elapsed_s: float, result: ExecResult | None, limits: Limits) -> float:
    """How long a run takes of the time that passed: others may have the machine meanwhile.

    What was repeated was disturbed, and a program that only computes waits for nothing but a core.
    """
    if result is None:
        return elapsed_s
    if result.attempts > 1:
        elapsed_s = result.wall_s
    computes = result.cpu_s > limits.cpu_s / 2
    return elapsed_s - max(0.0, result.wall_s - result.cpu_s) if computes else elapsed_s


class _Program(NamedTuple):
    """A program and how it is to be run."""

    code: str
    spec: SandboxSpec
    language: str
    stdin: str
    files: Mapping[str, str]
    repeat: int
    cancel_after_s: float | None

    @classmethod
    def of(cls, case: Mapping[str, Any]) -> "_Program":
        return cls(
            code=case["code"],
            spec=SandboxSpec(limits=_limits(case)),
            language=str(case.get("language", "python")),
            stdin=str(case.get("stdin") or ""),
            files={name: case["files"][name] for name in case.get("files") or {}},
            repeat=int(case.get("repeat", 1)),
            cancel_after_s=_cancel_after_s(case),
        )

    async def run(self, sandbox: Sandbox) -> ExecResult | None:
        """The result; none if the run is cancelled."""
        for name, text in self.files.items():
            await sandbox.write_file(name, text.encode())
        running = asyncio.create_task(self._run(sandbox))
        if self.cancel_after_s is None:
            return await running
        await asyncio.wait({running}, timeout=self.cancel_after_s)
        running.cancel()
        await asyncio.wait({running})
        return None

    async def _run(self, sandbox: Sandbox) -> ExecResult:
        if self.language in ("sh", "bash", "shell"):
            return await sandbox.run_shell(self.code, stdin=self.stdin)
        if self.files:
            return await sandbox.run_cell(self.code)
        [result] = await sandbox.run_tests(self.code, [Script(stdin=self.stdin)])
        return result


def _cancel_after_s(case: Mapping[str, Any]) -> float | None:
    given = [case[name] for name in ("cancel_after_s", "cancel_after") if name in case]
    is_cancelled = case.get("cancel") or case.get("cancelled")
    return float(given[0]) if given else _CANCEL_S if is_cancelled else None


def _limits(case: Mapping[str, Any]) -> Limits:
    given: dict[str, Any] = {}
    if (seconds := case.get("timeout_s")) is not None:
        given |= {"cpu_s": seconds, "wall_s": seconds}
    if (memory := case.get("memory_limit_mb")) is not None:
        given |= {"memory_mb": memory, "tree_memory_mb": memory * 3 // 2}
    if (characters := case.get("output_limit_chars")) is not None:
        given["output_bytes"] = max(characters - _MARK_ROOM, 1)
    names = ("processes", "disk_mb", "file_mb", "flood_mb", "open_files")
    return Limits(**given, **{name: case[name] for name in names if name in case})


def _told(result: ExecResult | None, limit: int) -> dict[str, Any]:
    if result is None:
        return {}
    return {
        "status": result.outcome.status,
        "outcome": result.outcome.value,
        "blame": result.blame,
        "exit_code": result.exit_code,
        "signal": result.signal,
        "stdout": result.stdout,
        "stderr": result.stderr,
        "stdout_max_chars": _Characters.of(len(result.stdout), limit),
        "stderr_max_chars": _Characters.of(len(result.stderr), limit),
        "truncated": result.stdout_cut or result.stderr_cut,
        "utf8_encodable": _is_encodable(result.stdout + result.stderr),
        "state_lost": result.state_lost,
    }


class _Characters(int):
    """A number of characters that equals "<=limit" if it is within the limit of the case."""

    limit: int

    @classmethod
    def of(cls, number: int, limit: int) -> "_Characters":
        made = cls(number)
        made.limit = limit
        return made

    def __eq__(self, other: object) -> bool:
        return self <= self.limit if other == "<=limit" else int(self) == other

    __hash__ = int.__hash__


async def _around(
    program: _Program, handle: LazySandbox, result: ExecResult | None
) -> dict[str, Any]:
    """What else can be told of the sandbox after the runs, and of the program under a test."""
    sandbox = await handle.get()
    [alive] = await sandbox.run_tests("print('alive')", [Script()])
    said: dict[str, Any] = {
        "worker_alive": alive.outcome is Outcome.OK,
        "after_runs": program.repeat,
        "tests_passed": False,
    }
    if result is None or result.wall_s > _QUICK_S or program.language != "python":
        return said
    [test] = await sandbox.run_tests(program.code, [Call(function="solution")])
    said["tests_passed"] = test.outcome is Outcome.OK and test.has_value
    seen = await python.call({"code": program.code}, ToolContext(sandbox=handle))
    return said | {"stdout_or_result": seen.content, "hint": seen.content}


def _is_encodable(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


class _State(NamedTuple):
    """What there is of this process's that a run could leave more of."""

    children: set[int]
    fds: int
    entries: int

    @classmethod
    def now(cls, folder: str) -> "_State":
        return cls(descendants(), len(os.listdir("/proc/self/fd")), len(os.listdir(folder)))

    def left(self, folder: str) -> dict[str, int]:
        """How much more there is now; what has been ended gets a moment to be gone."""
        deadline = time.monotonic() + _SETTLE_S
        while (now := _State.now(folder)).children - self.children and time.monotonic() < deadline:
            time.sleep(0.01)
        return {
            "child_processes_left": len(now.children - self.children),
            "open_fds_growth": now.fds - self.fds,
            "temp_dirs_left": now.entries - self.entries,
        }


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update({name: variables[name] for name in before})
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def _own_temporary_folder() -> Iterator[str]:
    before = tempfile.tempdir
    with tempfile.TemporaryDirectory() as folder:
        tempfile.tempdir = folder
        os.chmod(folder, 0o711)
        try:
            yield folder
        finally:
            tempfile.tempdir = before


def _absolute_paths(code: str) -> set[str]:
    """Texts of the program that name a file of the host."""
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError):
        return set()
    texts = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant))
    return {t for t in texts if isinstance(t, str) and t.startswith("/") and "\0" not in t}
