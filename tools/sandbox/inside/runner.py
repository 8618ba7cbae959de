"""The first process of a sandbox: takes requests of the host one by one and has children do them.

Foreign code never runs in here. After each call every process but this one and the interpreter of
the cells is killed, and that interpreter is stopped, so that nothing runs that is not metered.
"""

import gc
import importlib
import os
import signal
import site
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from agentgym.tools.sandbox.inside import files, kernel, program, system, wire
from agentgym.tools.sandbox.inside.child import Child, Nursery
from agentgym.tools.sandbox.inside.config import LimitConfig, RunnerConfig
from agentgym.tools.sandbox.inside.confine import Confinement
from agentgym.tools.sandbox.inside.decode import decode
from agentgym.tools.sandbox.inside.folders import empty, remove
from agentgym.tools.sandbox.inside.meter import Meter
from agentgym.tools.sandbox.inside.processes import Family
from agentgym.tools.sandbox.inside.watch import HostGoneError, Watch


def main(control: int) -> NoReturn:
    """Serve the host until it is gone."""
    runner = None
    try:
        config: Any = wire.receive(control)
        runner = Runner(control, config)
        wire.send(control, {"hello": os.getpid()})
        runner.serve()
    except (EOFError, HostGoneError, BrokenPipeError, ConnectionResetError):
        pass
    finally:
        if runner is not None:
            runner.clear_up()
    os._exit(0)


class Runner:
    """Everything that outlives a call."""

    def __init__(self, control: int, config: RunnerConfig) -> None:
        self._control, self._config = control, config
        _settle(config)
        confine = config["confine"]
        confinement = None if confine is None else Confinement(confine)
        self._nursery = Nursery(config, confinement)
        self._family = Family(owns_pids=config["owns_pids"], owns_uid=config["owns_uid"])
        self._kernel: Child | None = None
        self._program = ""
        gc.freeze()

    def serve(self) -> NoReturn:
        """Answer requests; "program" has no answer."""
        answers: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            "case": self._case,
            "cell": self._cell,
            "shell": self._shell,
            "read": self._file,
            "write": self._file,
        }
        while True:
            request = wire.receive(self._control)
            if request["op"] == "program":
                self._program = request["program"]
                continue
            answer = answers[request["op"]](request)
            wire.send(self._control, answer)

    def clear_up(self) -> None:
        """Leave nothing."""
        self._family.kill_all()
        for folder in self._config["remove"]:
            remove(folder)

    def _case(self, request: dict[str, Any]) -> dict[str, Any]:
        case, limits = request["case"], request["limits"]
        run = {"script": _script, "call": _call, "expression": _expression}[case["kind"]]
        text = self._program
        stdin = _bytes(case["stdin"]) if case["kind"] == "script" else None
        folder = os.path.join(self._config["scratch"][0], "run")
        os.mkdir(folder)
        try:
            return self._once(
                lambda: run(text, case, limits["value_bytes"]), limits, stdin, folder=folder
            )
        finally:
            for scratch in self._config["scratch"]:
                empty(scratch)

    def _shell(self, request: dict[str, Any]) -> dict[str, Any]:
        argv = [b"/bin/sh", b"-c", _bytes(request["command"])]
        return self._once(
            lambda: os.execve(argv[0], argv, os.environ),
            request["limits"],
            _bytes(request["stdin"]),
        )

    def _file(self, request: dict[str, Any]) -> dict[str, Any]:
        limits = dict(request["limits"], value_bytes=2 * request["max_bytes"] + 2**16)
        return self._once(lambda: files.run(request, self._config["workdir"]), limits, None)

    def _cell(self, request: dict[str, Any]) -> dict[str, Any]:
        limits = request["limits"]
        if self._kernel is None:
            self._kernel = self._nursery.start(kernel.serve, self._config["limits"], serves=True)
        child = self._kernel
        _discard(child.result)
        os.kill(child.pid, signal.SIGCONT)
        question = {"op": "cell", "code": request["code"], "value_bytes": limits["value_bytes"]}
        watch = self._watch(child, limits, wire.pack(question), serves=True)
        watch.run()
        self._settle_kernel(child, watch.has_ended)
        answer = watch.finish()
        if watch.has_ended:
            child.close()
            self._kernel = None
        return answer

    def _settle_kernel(self, child: Child, has_ended: bool) -> None:
        """Stop it, and kill what its cell has left running."""
        if has_ended:
            self._family.kill_all()
            return
        os.kill(child.pid, signal.SIGSTOP)
        if self._family.kill_all(spared=child.pid):
            self._reap_in_kernel(child)

    def _reap_in_kernel(self, child: Child) -> None:
        """Its children that were killed are its own to wait for."""
        os.kill(child.pid, signal.SIGCONT)
        request = wire.pack({"op": "reap"})
        watch = self._watch(child, self._config["limits"], request, serves=True)
        watch.run()
        if not watch.has_ended:
            os.kill(child.pid, signal.SIGSTOP)
        self._family.kill_all(spared=child.pid)

    def _once(
        self,
        body: Callable[[], NoReturn],
        limits: Any,
        stdin: bytes | None,
        *,
        folder: str = "",
    ) -> dict[str, Any]:
        """Have a new child do something."""
        child = self._nursery.start(body, limits, reads=stdin is not None, folder=folder)
        watch = self._watch(child, limits, stdin or b"")
        try:
            watch.run()
            self._family.kill_all(spared=None if self._kernel is None else self._kernel.pid)
            return watch.finish()
        finally:
            watch.child.close()

    def _watch(
        self, child: Child, limits: LimitConfig, data: bytes, *, serves: bool = False
    ) -> Watch:
        idle = self._kernel.pid if self._kernel is not None and self._kernel is not child else None
        folders = (self._config["workdir"], *self._config["scratch"])
        meter = Meter(
            self._family,
            limits,
            pid=child.pid,
            folders=folders,
            limits_disk=self._config["watch_disk"],
            idle=idle,
        )
        return Watch(child, meter, limits, control=self._control, data=data, serves=serves)


def _bytes(text: str) -> bytes:
    """Halves of pairs, which no file could hold either, become question marks."""
    try:
        return text.encode(errors="surrogateescape")
    except UnicodeEncodeError:
        return text.encode(errors="replace")


def _discard(fd: int) -> None:
    """What was written there that nobody had asked for."""
    os.set_blocking(fd, False)
    try:
        while os.read(fd, 2**16):
            pass
    except BlockingIOError:
        return


def _script(text: str, case: "dict[str, Any]", max_bytes: int) -> NoReturn:
    program.run_script(text)


def _call(text: str, case: "dict[str, Any]", max_bytes: int) -> NoReturn:
    args, kwargs = decode(case["args"]), decode(case["kwargs"])
    program.run_call(text, case["function"], args, kwargs, max_bytes)


def _expression(text: str, case: "dict[str, Any]", max_bytes: int) -> NoReturn:
    program.run_expression(text, case, max_bytes)


def _settle(config: RunnerConfig) -> None:
    """Make this process fit to be forked from, and hard to get at."""
    system.prctl(system.PR_SET_DUMPABLE, 0)
    system.prctl(system.PR_SET_CHILD_SUBREAPER, 1)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.environ.clear()
    os.environ.update(config["env"])
    sys.path += config["import_paths"]
    site.setquit()
    for name in (*_USUAL, *config["preload"]):
        importlib.import_module(name)
    gc.collect()
    gc.disable()


_USUAL = ("collections", "functools", "heapq", "itertools", "math", "random", "re", "string")
