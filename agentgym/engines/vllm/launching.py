"""Runs vLLM's server as a child: waits until it is well, and takes it down on the way out."""

import ctypes
import os
import secrets
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any

from agentgym.engines.vllm.guard import MARK_HEADER, MARK_VARIABLE
from agentgym.errors import EngineError

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_GRACE_S = 30.0
_ASK_EVERY_S = 0.5
_TELL_EVERY_S = 10.0
_PR_SET_PDEATHSIG = 1
_DIRECTLY = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""A proxy, which the environment may name, does not know this machine's servers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """What to start."""

    argv: Sequence[str]
    environment: Mapping[str, str]
    url: str
    """Without a path."""
    timeout_s: float
    """Until it must be ready."""


class _Stop(BaseException):
    """A signal came."""


def run_server(launch: Launch, *, ready: str) -> int:
    """Run until the server ends by itself, in peace, or a signal comes; 0, the exit code.

    Args:
        launch: what to start.
        ready: printed once requests are answered.

    Raises:
        EngineError: the server ended before it was ready, was not ready in time, or broke.
        KeyboardInterrupt: a signal came before it was ready.
    """
    mark = secrets.token_hex(8)
    with _signals_as_stop():
        process = subprocess.Popen(
            launch.argv,
            env={**launch.environment, MARK_VARIABLE: mark},
            stdout=sys.stderr,
            start_new_session=True,
            preexec_fn=_end_with_parent,
        )
        is_ready = False
        try:
            _wait_until_ready(process, launch, mark)
            is_ready = True
            print(ready, flush=True)
            if code := process.wait():
                raise EngineError(f"vLLM ended with code {code}; see above why")
            return 0
        except _Stop:
            if is_ready:
                return 0
            print("stopped before vLLM was ready", file=sys.stderr, flush=True)
            raise KeyboardInterrupt from None
        finally:
            _end(process)


def _wait_until_ready(process: "subprocess.Popen[bytes]", launch: Launch, mark: str) -> None:
    start = told = time.monotonic()
    while not _is_well(launch.url, mark):
        code = process.poll()
        if code is not None:
            raise EngineError(f"vLLM ended with code {code} before it was ready; see above why")
        now = time.monotonic()
        if now - start > launch.timeout_s:
            raise EngineError(f"vLLM was not ready within {launch.timeout_s:g} s")
        if now - told >= _TELL_EVERY_S:
            told = now
            print(f"starting vLLM: {now - start:.0f} s", file=sys.stderr, flush=True)
        time.sleep(_ASK_EVERY_S)


def _is_well(url: str, mark: str) -> bool:
    """Whether it answers itself: somebody else may have taken the port while it was starting."""
    try:
        with _DIRECTLY.open(f"{url}/health", timeout=5) as answer:
            return bool(answer.headers[MARK_HEADER] == mark)
    except (OSError, HTTPException):
        return False


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Ask it to end, then make it; with all its processes."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(_GRACE_S)
        except (subprocess.TimeoutExpired, _Stop):
            print("vLLM did not end by itself; it is killed", file=sys.stderr)
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    process.wait()


def _end_with_parent() -> None:
    """In the child: a launcher that is killed leaves no server behind."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


@contextmanager
def _signals_as_stop() -> Iterator[None]:
    def stop(*_: object) -> None:
        raise _Stop

    is_detached = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN  # as `nohup` starts programs
    heard = _SIGNALS if is_detached else (*_SIGNALS, signal.SIGHUP)
    before: dict[int, Any] = {number: signal.signal(number, stop) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
