"""A test's program in several processes. Each has an output of its own, so that no line is torn."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import warm_kit

from agentgym.engines.vllm.ports import free_port

TIMEOUT_S = 600.0
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


def run(program: Sequence[str | Path], processes: int = 2) -> Ended:
    """Python with `program`, a file and arguments, in processes that are told of each other.

    All are waited for: none may need somebody to end it.
    """
    port = free_port()
    return _run(program, [_rank(index, processes, port) for index in range(processes)])


def alone(program: Sequence[str | Path]) -> Ended:
    """The same in a process that is told of no other."""
    return _run(program, [{}])


def _run(program: Sequence[str | Path], told: list[dict[str, str]]) -> Ended:
    environments = [{**os.environ, **ENVIRONMENT, **each} for each in told]
    started = [warm_kit.start(*program, cwd=Path.cwd(), env=env) for env in environments]
    with ThreadPoolExecutor(len(started)) as threads:
        ends = list(threads.map(lambda each: each.communicate(TIMEOUT_S), started))
    codes = [each.returncode or 0 for each in started]
    said, errors = zip(*ends, strict=True)
    return Ended(max(codes, key=abs), said, "\n".join(errors))


def _rank(index: int, processes: int, port: int) -> dict[str, str]:
    ranks = {"RANK": index, "LOCAL_RANK": index}
    sizes = {"WORLD_SIZE": processes, "LOCAL_WORLD_SIZE": processes}
    told = ranks | sizes | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    return {name: str(value) for name, value in told.items()}


def torchrun(program: Sequence[str | Path], *, cwd: Path) -> Ended:
    """The same by PyTorch's launcher, two processes; it kills one when the other has failed."""
    launch = ["-m", "torch.distributed.run", "--standalone", "--redirects", "1"]
    with tempfile.TemporaryDirectory() as logs:
        done = subprocess.run(
            [sys.executable, *launch, "--log-dir", logs, "--nproc_per_node", "2", *program],
            cwd=cwd,
            env={**os.environ, **ENVIRONMENT},
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )
        outputs = [Path(logs).glob(f"*/attempt_0/{index}/stdout.log") for index in range(2)]
        said = tuple(next(found).read_text() for found in outputs)
    return Ended(done.returncode, said, done.stderr)
