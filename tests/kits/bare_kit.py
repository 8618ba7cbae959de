"""No sandbox at all, in the shape of one: what shows that an attack can succeed.

A supervisor, which an attack may kill, runs the program as anyone would: `subprocess.run` with a
timeout.
"""

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from agentgym.tools.sandbox.base import (
    Case,
    ExecResult,
    Level,
    Outcome,
    ProbeReport,
    SandboxSpec,
    Script,
)
from agentgym.tools.sandbox.limits import Limits

TIMEOUT_S = 6.0
LONGEST_S = 4.0
SUPERVISOR = """
import subprocess, sys
try:
    words, timeout = [sys.executable, sys.argv[1]], float(sys.argv[2])
    done = subprocess.run(words, timeout=timeout, close_fds=False)
except subprocess.TimeoutExpired:
    sys.exit(99)
sys.exit(done.returncode if done.returncode >= 0 else 98)
"""


class BareSandbox:
    """A folder, and nothing around it."""

    backend = "bare"
    level = Level.NONE
    id = "bare"

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="bare-"))

    async def run_tests(
        self, program: str, cases: Sequence[Case], *, limits: Limits | None = None
    ) -> list[ExecResult]:
        return [await asyncio.to_thread(self._run, program, case) for case in cases]

    async def write_file(self, path: str, data: bytes) -> None:
        (self._folder / path).write_bytes(data)

    async def read_file(self, path: str, *, max_bytes: int = 1_048_576) -> bytes:
        return (self._folder / path).read_bytes()[:max_bytes]

    async def reset(self) -> None: ...

    async def close(self) -> None:
        remove = await asyncio.create_subprocess_exec("rm", "-rf", str(self._folder))
        await remove.wait()

    def _run(self, program: str, case: Case) -> ExecResult:
        assert isinstance(case, Script)
        file = self._folder / "program.py"
        file.write_text(program)
        words = [sys.executable, "-c", SUPERVISOR, str(file), str(TIMEOUT_S)]
        pipe = subprocess.PIPE
        process = subprocess.Popen(
            words, stdin=pipe, stdout=pipe, stderr=pipe, cwd=self._folder, close_fds=False,
            start_new_session=True, errors="replace", text=True, env=self._environment(),
        )  # fmt: skip
        out, err = _talk(process, case.stdin)
        process.wait()
        outcome = Outcome.OK if process.returncode == 0 else Outcome.ERROR
        outcome = Outcome.WALL_TIMEOUT if process.returncode == 99 else outcome
        return ExecResult(
            outcome=Outcome.LOST if process.returncode < 0 else outcome,
            blame="infra" if process.returncode < 0 else "code",
            stdout=out,
            stderr=err,
        )

    def _environment(self) -> dict[str, str]:
        return {**os.environ, "HOME": str(self._folder)}


def _talk(process: "subprocess.Popen[str]", stdin: str) -> tuple[str, str]:
    """What it wrote; whoever holds its pipes for long is given up."""
    try:
        return process.communicate(stdin, timeout=TIMEOUT_S + 1)
    except subprocess.TimeoutExpired:
        process.kill()
    try:
        return process.communicate(timeout=LONGEST_S)
    except subprocess.TimeoutExpired:
        return "", "its pipes are held"


class BareProvider:
    """Gives out folders."""

    backend = "bare"
    level = Level.NONE

    async def probe(self) -> ProbeReport:
        return ProbeReport("bare", Level.NONE, True, ())

    async def open(self, spec: SandboxSpec | None = None) -> BareSandbox:
        return BareSandbox()

    async def aclose(self) -> None: ...
