"""A process for foreign code: its own streams, limits and walls, and nothing of the runner's."""

import fcntl
import gc
import os
import resource
import signal
import sys
from collections.abc import Callable
from typing import NamedTuple, NoReturn

from agentgym.tools.sandbox.inside import system
from agentgym.tools.sandbox.inside.config import LimitConfig, RunnerConfig
from agentgym.tools.sandbox.inside.confine import Confinement
from agentgym.tools.sandbox.inside.processes import num_threads_of_user

RESULT, REQUEST = 3, 4
"""Descriptors of a child beside its three streams."""
_MOVED = 200
_OWN_MODULES = "agentgym"
_SPARE_CPU_S = 1
_RUNNER_AND_KERNEL = 2


class Child(NamedTuple):
    """A process that was started, and the runner's ends of its pipes."""

    pid: int
    pidfd: int
    stdin: int
    """-1 where it reads nothing."""
    stdout: int
    stderr: int
    result: int
    request: int
    """-1 where it is asked nothing."""

    def close(self) -> None:
        """Let go of it."""
        for fd in (self.pidfd, self.stdin, self.stdout, self.stderr, self.result, self.request):
            if fd >= 0:
                os.close(fd)


class Nursery:
    """Starts children."""

    def __init__(self, config: RunnerConfig, confinement: Confinement | None) -> None:
        self._config, self._confinement = config, confinement

    def start(
        self,
        body: Callable[[], NoReturn],
        limits: LimitConfig,
        *,
        reads: bool = False,
        serves: bool = False,
        folder: str = "",
    ) -> Child:
        """Fork a child and run `body` in it.

        Args:
            body: what it does; must end the process.
            limits: of the process.
            reads: whether it gets a stdin; else it is at its end.
            serves: whether it is asked over a pipe, call after call, without a limit of its own on
                processor time.
            folder: where it begins; the working directory if left out.
        """
        outputs = [os.pipe() for _ in range(3)]
        stdin = os.pipe() if reads else (os.open(os.devnull, os.O_RDONLY), -1)
        request = os.pipe() if serves else (-1, -1)
        pid = os.fork()
        if pid == 0:
            theirs = [stdin[0], *(write for _, write in outputs), request[0]]
            self._become_a_child(theirs, limits, serves, folder or self._config["workdir"], body)
        for fd in (stdin[0], *(write for _, write in outputs), request[0]):
            if fd >= 0:
                os.close(fd)
        out, err, result = (read for read, _ in outputs)
        return Child(pid, os.pidfd_open(pid), stdin[1], out, err, result, request[1])

    def _max_processes(self, limits: LimitConfig) -> int:
        """For the user: with its own processes where it has others."""
        shares = not (self._config["owns_pids"] or self._config["owns_uid"])
        return limits["processes"] + (num_threads_of_user() if shares else _RUNNER_AND_KERNEL)

    def _become_a_child(
        self,
        fds: list[int],
        limits: LimitConfig,
        serves: bool,
        folder: str,
        body: Callable[[], NoReturn],
    ) -> NoReturn:
        try:
            os.setsid()
            _take_descriptors(fds, None if self._confinement is None else self._confinement.fd)
            _set_limits(limits, self._max_processes(limits), serves)
            system.prctl(system.PR_SET_PDEATHSIG, signal.SIGKILL)
            system.prctl(system.PR_SET_DUMPABLE, 1)
            os.chdir(folder)
            if self._confinement is not None:
                self._confinement.enter()
            _forget_the_runner()
            gc.enable()
            body()
        except BaseException as error:
            os.write(2, f"the sandbox could not start the code: {error!r}\n".encode())
        os._exit(125)


def _take_descriptors(fds: list[int], spared: int | None) -> None:
    moved = [fcntl.fcntl(fd, fcntl.F_DUPFD, _MOVED) if fd >= 0 else -1 for fd in fds]
    for place, fd in enumerate(moved):
        if fd >= 0:
            os.dup2(fd, place, inheritable=place <= 2)
    first = REQUEST + (moved[REQUEST] >= 0)
    os.closerange(first, first if spared is None else spared)
    os.closerange(first if spared is None else spared + 1, 2**20)


def _set_limits(limits: LimitConfig, max_processes: int, serves: bool) -> None:
    memory, file = limits["memory_mb"] * 2**20, limits["file_mb"] * 2**20
    cpu = resource.RLIM_INFINITY if serves else int(limits["cpu_s"]) + _SPARE_CPU_S
    hard_cpu = cpu if serves else cpu + _SPARE_CPU_S
    fixed = {
        resource.RLIMIT_AS: (memory, memory),
        resource.RLIMIT_FSIZE: (file, file),
        resource.RLIMIT_CPU: (cpu, hard_cpu),
        resource.RLIMIT_NPROC: (max_processes, max_processes),
        resource.RLIMIT_NOFILE: (limits["open_files"], limits["open_files"]),
        resource.RLIMIT_CORE: (0, 0),
        resource.RLIMIT_MEMLOCK: (0, 0),
        resource.RLIMIT_MSGQUEUE: (0, 0),
        resource.RLIMIT_NICE: (0, 0),
        resource.RLIMIT_RTPRIO: (0, 0),
        resource.RLIMIT_SIGPENDING: (128, 128),
    }
    for which, (soft, hard) in fixed.items():
        _, most = resource.getrlimit(which)
        if most != resource.RLIM_INFINITY:
            soft, hard = min(soft, most), min(hard, most)
        resource.setrlimit(which, (soft, hard))


def _forget_the_runner() -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == _OWN_MODULES]:
        del sys.modules[name]
