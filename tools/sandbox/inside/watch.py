"""Waits for one call: moves its streams, holds it to its limits, says how it ended."""

import os
import select
import signal
import time
from typing import Any

from agentgym.tools.sandbox.inside.child import Child
from agentgym.tools.sandbox.inside.config import LimitConfig
from agentgym.tools.sandbox.inside.meter import Meter
from agentgym.tools.sandbox.inside.output import Output

TICK_S = 0.05
_GRACE_S = 1.0
_CHUNK = 2**18
_REPORT_BYTES = 2**17
"""Beside a value: how it looks, and names of classes."""
_INTERRUPTED = ("cpu", "wall", "starved")
"""Limits after which the interpreter of the cells may go on, if it stops by itself."""
_BEARABLE = (*_INTERRUPTED, None)


class HostGoneError(Exception):
    """Nobody is left to report to."""


class Watch:
    """One call under way.

    Args:
        child: who runs it.
        meter: what it has used.
        limits: what it may use.
        control: the control socket; when its other end closes, everything ends.
        data: what the child is given to read: its stdin, or the request it serves.
        serves: whether the call is over once the child has answered, and not when it has ended.
    """

    def __init__(
        self,
        child: Child,
        meter: Meter,
        limits: LimitConfig,
        *,
        control: int,
        data: bytes = b"",
        serves: bool = False,
    ) -> None:
        self._child, self._meter, self._limits = child, meter, limits
        self._control, self._serves = control, serves
        self._data = memoryview(data)
        self._sink = child.request if serves else child.stdin
        self._outputs = {
            child.stdout: Output(limits["output_bytes"]),
            child.stderr: Output(limits["output_bytes"]),
        }
        self._result = bytearray()
        self._ended = False
        self._killed: str | None = None
        self._interrupted_at: float | None = None
        self._status: int | None = None
        self._usage_s = 0.0
        self._usage_mb = 0.0
        self._poll = select.poll()

    def run(self) -> None:
        """Wait until it is over.

        Raises:
            HostGoneError: the host has closed the control socket.
        """
        self._register()
        next_check = time.monotonic() + TICK_S
        while not self._is_over():
            self._pump(max(0.0, next_check - time.monotonic()))
            if time.monotonic() >= next_check:
                self._check()
                next_check = time.monotonic() + TICK_S
        if self._serves:
            self._meter.passed_limit()

    def finish(self) -> dict[str, Any]:
        """What came of it, once no process of it is left to write."""
        self._drain()
        meter = self._meter
        status = self._status
        exited = status is not None and os.WIFEXITED(status)
        return {
            "exit": os.WEXITSTATUS(status) if exited and status is not None else None,
            "signal": os.WTERMSIG(status) if not exited and status is not None else None,
            "killed": self._killed,
            "cpu_s": max(meter.cpu_s, self._usage_s),
            "wall_s": meter.wall_s,
            "waited_s": meter.waited_s,
            "max_rss_mb": max(meter.peak_mb, self._usage_mb),
            "stdout": self._outputs[self._child.stdout].read(),
            "stderr": self._outputs[self._child.stderr].read(),
            "result": self._result.decode(errors="replace"),
            "state_lost": self._serves and self._ended,
            "host_fault": meter.host_fault(),
        }

    @property
    def has_ended(self) -> bool:
        """Whether the child is gone."""
        return self._ended

    def _register(self) -> None:
        child = self._child
        for fd in (child.stdout, child.stderr, child.result):
            os.set_blocking(fd, False)
            self._poll.register(fd, select.POLLIN)
        self._poll.register(child.pidfd, select.POLLIN)
        self._poll.register(self._control, 0)
        if self._sink >= 0:
            os.set_blocking(self._sink, False)
            self._poll.register(self._sink, select.POLLOUT)

    def _is_over(self) -> bool:
        return self._ended or (self._serves and self._result.endswith(b"\n"))

    def _pump(self, timeout_s: float) -> None:
        for fd, _ in self._poll.poll(timeout_s * 1000):
            if fd == self._control:
                raise HostGoneError
            if fd == self._child.pidfd:
                self._reap()
            elif fd == self._sink:
                self._feed()
            else:
                self._take(fd)

    def _take(self, fd: int) -> bool:
        """Read what is there; whether there may be more."""
        try:
            data = os.read(fd, _CHUNK)
        except BlockingIOError:
            return False
        if not data:
            self._forget(fd)
            return False
        if fd == self._child.result:
            room = self._limits["value_bytes"] + _REPORT_BYTES - len(self._result)
            self._result += data[: max(0, room)]
        else:
            self._outputs[fd].add(data)
        return True

    def _feed(self) -> None:
        try:
            self._data = self._data[os.write(self._sink, self._data[:_CHUNK]) :]
        except BlockingIOError:
            return
        except BrokenPipeError:
            self._data = memoryview(b"")
        if not self._data:
            self._poll.unregister(self._sink)
            self._close_stdin()

    def _close_stdin(self) -> None:
        if not self._serves:
            os.close(self._sink)
            self._child = self._child._replace(stdin=-1)
            self._sink = -1

    def _forget(self, fd: int) -> None:
        try:
            self._poll.unregister(fd)
        except KeyError:
            return

    def _check(self) -> None:
        passed = self._passed_limit()
        if self._interrupted_at is not None:
            if passed not in _BEARABLE or time.monotonic() - self._interrupted_at > _GRACE_S:
                self._kill()
            return
        if passed is None or self._is_over():
            return
        self._killed = passed
        if self._serves and passed in _INTERRUPTED:
            self._interrupted_at = time.monotonic()
            self._signal(signal.SIGINT)
        else:
            self._kill()

    def _passed_limit(self) -> str | None:
        passed = self._meter.passed_limit()
        flooded = sum(output.total for output in self._outputs.values()) > self._flood
        return "flood" if flooded else passed

    @property
    def _flood(self) -> int:
        return self._limits["flood_mb"] * 2**20

    def _kill(self) -> None:
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        try:
            os.kill(self._child.pid, number)
        except ProcessLookupError:
            return

    def _reap(self) -> None:
        _, self._status, usage = os.wait4(self._child.pid, 0)
        self._ended = True
        self._forget(self._child.pidfd)
        if not self._serves:
            self._usage_s = usage.ru_utime + usage.ru_stime
        self._usage_mb = usage.ru_maxrss / 1024

    def _drain(self) -> None:
        for fd in (self._child.stdout, self._child.stderr, self._child.result):
            while self._take(fd):
                pass

    @property
    def child(self) -> Child:
        """With the ends that are still open."""
        return self._child
