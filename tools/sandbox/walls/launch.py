"""How a back end of this machine starts the runner: the one thing in which they differ.

The runner (`inside`) is the same program everywhere. A launcher puts a wall around it, or gives it
what it needs to put every child of its own behind one.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from agentgym.tools.sandbox.base import Level, Probe, SandboxSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A process to be started, and how to clear up after it."""

    argv: Sequence[str]
    env: Mapping[str, str]
    """All of it: nothing is inherited."""
    pass_fds: Sequence[int] = ()
    """Beside the control socket; closed here once the process has been started."""
    user: int | None = None
    """Uid and gid it is started under, with no further groups."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """For the runner, as JSON: see `inside.config`."""
    release: Callable[[], None] = lambda: None
    """Free what was taken for this sandbox (a uid, a folder) once its process has ended."""


class Launcher(Protocol):
    """A wall."""

    @property
    def backend(self) -> str:
        """Its name."""
        ...

    @property
    def level(self) -> Level:
        """What it claims."""
        ...

    @property
    def gaps(self) -> tuple[str, ...]:
        """What it does not keep out."""
        ...

    def prepare(self, spec: SandboxSpec, runner: Callable[[str], Sequence[str]]) -> Launch:
        """The process that runs `runner(python)`, the words after which the sandbox is up.

        Args:
            spec: what is opened.
            runner: makes the command line of the runner from the path of the interpreter in there;
                it names the descriptor of the control socket, which is inherited under its number.

        Raises:
            SandboxError: the machine has no more of something (uids, descriptors, disk).
            UsageError: what the spec asks for is not here.
        """
        ...

    def probes(self) -> tuple[Probe, ...]:
        """What can be told without opening a sandbox: programs, kernel, permissions."""
        ...
