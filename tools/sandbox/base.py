"""What a sandbox is, whichever back end runs it.

A result says who is to blame. `code`: the program did it, and is judged by it. `infra`: the machine
or the service failed; whoever asked tries again and at last raises, so that no program is ever
rewarded or punished for it. The program's own word counts for neither.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

from agentgym.tools.sandbox.inside.decode import Opaque as Opaque
from agentgym.tools.sandbox.limits import Limits


class Level(IntEnum):
    """How well code is kept apart; what each holds and lacks is in the README."""

    NONE = 1
    """Limits only: the code can read this user's files, keys and network."""
    LANDLOCK = 2
    """Files and network closed by the kernel, processes and users shared with the host."""
    NAMESPACES = 3
    """Own files, processes, users and network; shares the kernel."""
    VM = 4
    """Another machine."""


class Outcome(StrEnum):
    """How a call ended."""

    OK = "ok"
    ERROR = "error"
    """An exception, or an exit code other than 0."""
    SIGNAL = "signal"
    """Killed by a signal that is none of the limits."""
    CPU_LIMIT = "cpu_limit"
    WALL_TIMEOUT = "wall_timeout"
    """Slept or waited for too long."""
    STARVED = "starved"
    """Got too little of the processor to be judged by the clock."""
    MEMORY_LIMIT = "memory_limit"
    OUTPUT_LIMIT = "output_limit"
    DISK_LIMIT = "disk_limit"
    PROCESS_LIMIT = "process_limit"
    LOST = "lost"
    """The sandbox died in the call."""
    UNAVAILABLE = "unavailable"
    """There was no sandbox to run it in."""

    @property
    def status(self) -> Literal["ok", "error", "timeout", "memory_limit", "output_limit"]:
        """In the five words of the field's contract."""
        return _STATUS.get(self, "error")  # type: ignore[return-value]


_STATUS = {
    Outcome.OK: "ok",
    Outcome.CPU_LIMIT: "timeout",
    Outcome.WALL_TIMEOUT: "timeout",
    Outcome.STARVED: "timeout",
    Outcome.MEMORY_LIMIT: "memory_limit",
    Outcome.OUTPUT_LIMIT: "output_limit",
}

Blame = Literal["code", "infra"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecResult:
    """What came of one call."""

    outcome: Outcome
    blame: Blame = "code"
    value: Any = None
    """What the function returned or the cell's last expression gave: plain data (None, bool, int,
    float, str, bytes, complex, list, tuple, dict, set, frozenset) or `Opaque`. Untrusted."""
    has_value: bool = False
    """Tells a value of `None` from none at all."""
    shown: str = ""
    """`repr` of a cell's value, cut; empty if there is none or it is `None`."""
    stdout: str = ""
    stderr: str = ""
    stdout_cut: bool = False
    stderr_cut: bool = False
    exit_code: int | None = None
    signal: int | None = None
    cpu_s: float = 0.0
    """Processor seconds of the code and its children."""
    wall_s: float = 0.0
    """Seconds from its start to its end."""
    queue_s: float = 0.0
    """Seconds it waited to be started, which no limit counts."""
    max_rss_mb: float = 0.0
    """Peak resident memory, as far as it was seen."""
    state_lost: bool = False
    """Whether the interpreter of the cells is a new one after this call."""
    attempts: int = 1
    evidence: str = ""
    """What was seen that decided outcome and blame."""

    @property
    def ok(self) -> bool:
        return self.outcome is Outcome.OK


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """The program is run as `__main__`, a process of its own."""

    stdin: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """The program is loaded, then one of its functions is called; the value is what it returns."""

    function: str
    """Name; `Solution.method` calls a method of a new object."""
    args: Sequence[Any] = ()
    """Plain data, as in `ExecResult.value`."""
    kwargs: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Expression:
    """The program is loaded, then an expression is evaluated beside it; its value is returned."""

    source: str
    setup: str = ""
    """Statements run after the program, such as imports of the tests."""


Case = Script | Call | Expression
"""One thing to try with a program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxSpec:
    """What a sandbox is opened with."""

    limits: Limits = field(default_factory=Limits)
    packages: tuple[str, ...] = ()
    """Installed distributions that the code may import beside the standard library: `numpy`."""
    preload: tuple[str, ...] = ()
    """Modules imported once, before the code is forked from them."""


@runtime_checkable
class Sandbox(Protocol):
    """One place to run code, of one trajectory; calls run one after another.

    Processes that a call leaves behind are killed; files in the working directory and the names of
    the cells stay until `reset`.

    Every call raises `SandboxError` where the infrastructure failed for good.
    """

    backend: str
    level: Level
    id: str

    async def run_cell(self, code: str, *, limits: Limits | None = None) -> ExecResult:
        """Run Python in the interpreter that keeps its names; the last expression is the value."""
        ...

    async def run_tests(
        self, program: str, cases: Sequence[Case], *, limits: Limits | None = None
    ) -> list[ExecResult]:
        """Run a program once per case, each in a fresh process; one result per case, in order.

        Only inputs go in: what is expected stays with the caller, who compares.
        """
        ...

    async def run_shell(
        self, command: str, *, stdin: str = "", limits: Limits | None = None
    ) -> ExecResult:
        """Run a line of `sh` in the working directory."""
        ...

    async def write_file(self, path: str, data: bytes) -> None:
        """Write a file under the working directory, making its folders.

        Raises:
            ToolError: it cannot be written there; says why.
        """
        ...

    async def read_file(self, path: str, *, max_bytes: int = 1_048_576) -> bytes:
        """Read a regular file under the working directory.

        Raises:
            ToolError: it is none, or too large; says why.
        """
        ...

    async def reset(self) -> None:
        """Forget names, files and processes."""
        ...

    async def close(self) -> None:
        """End it; idempotent, never raises, and is not cut short by a cancellation."""
        ...


class Probe(NamedTuple):
    """One thing that was tried on this machine."""

    name: str
    ok: bool
    reason: str
    """What was seen."""
    fix: str = ""
    """What would make it work."""


class ProbeReport(NamedTuple):
    """What a back end can do here."""

    backend: str
    level: Level
    usable: bool
    probes: tuple[Probe, ...]
    gaps: tuple[str, ...] = ()
    """What it does not keep out, for the line at start-up."""


class SandboxProvider(Protocol):
    """Where sandboxes come from."""

    backend: str
    level: Level

    async def probe(self) -> ProbeReport:
        """Try on this machine what the level promises; opens sandboxes, takes under a second."""
        ...

    async def open(self, spec: SandboxSpec | None = None) -> Sandbox:
        """A sandbox nobody has used.

        Raises:
            SandboxError: there is none to be had; it was tried several times.
        """
        ...

    async def aclose(self) -> None:
        """End every sandbox that is still open; idempotent."""
        ...


def isolation_of(place: Sandbox | SandboxProvider) -> dict[str, Any]:
    """Back end and level, for the record of what ran there."""
    return {"backend": place.backend, "level": int(place.level)}
