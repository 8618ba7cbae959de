"""A test's program in several processes. Each has an output of its own, so that no line is torn."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--redirects", "1")
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}


@dataclass(frozen=True, slots=True)
class Ended:
    """How a program ended, and what each of its processes printed."""

    code: int
    said: tuple[str, ...]
    errors: str

    def in_peace(self) -> "Ended":
        """It, which must have succeeded."""
        assert self.code == 0, self.errors[-3000:]
        return self


def run(program: Sequence[str | Path], processes: int = 2, *, cwd: Path | None = None) -> Ended:
    """Python with `program` (a file or `-m` and a module, and arguments) under torchrun."""
    with tempfile.TemporaryDirectory() as logs:
        many = ("--log-dir", logs, "--nproc_per_node", str(processes))
        done = _python([*TORCHRUN, *many, *program], cwd)
        outputs = [Path(logs).glob(f"*/attempt_0/{i}/stdout.log") for i in range(processes)]
        said = tuple(next(found).read_text() for found in outputs)
    return Ended(done.returncode, said, done.stderr)


def run_alone(program: Sequence[str | Path]) -> Ended:
    """Python with `program` in one process that knows of no other."""
    done = _python(program, None)
    return Ended(done.returncode, (done.stdout,), done.stderr)


def _python(program: Sequence[str | Path], cwd: Path | None) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, *map(str, program)],
        cwd=cwd,
        env={**os.environ, **ENVIRONMENT},
        capture_output=True,
        text=True,
        timeout=600,
    )
