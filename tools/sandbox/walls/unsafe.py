"""No sandbox: a plain process with limits, for machines on which nothing else can be had.

It is only taken when asked for by its whole name, and says at every start what it is not.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from agentgym.tools.sandbox.base import Level, Probe, SandboxSpec
from agentgym.tools.sandbox.walls.folder import make_folder
from agentgym.tools.sandbox.walls.launch import Launch
from agentgym.tools.sandbox.walls.layout import this_machine
from agentgym.tools.sandbox.walls.packages import entries


@dataclass(slots=True)
class UnsafeLauncher:
    """Starts the runner as this user, with nothing around it."""

    backend: str = "unsafe-subprocess"
    level: Level = Level.NONE
    gaps: tuple[str, ...] = (
        "code can read and change this user's files, keys and processes, and use the network",
    )

    def prepare(self, spec: SandboxSpec, runner: Callable[[str], Sequence[str]]) -> Launch:
        layout, packages = this_machine(), entries(spec.packages)
        folder = make_folder(packages)
        paths = [folder.packages] if packages else []
        environment = layout.environment(folder.workdir, import_paths=paths)
        environment["TMPDIR"] = folder.scratch
        return Launch(
            argv=runner(layout.python),
            env=environment,
            config={
                "workdir": folder.workdir,
                "scratch": [folder.scratch],
                "remove": [folder.path],
                "import_paths": paths,
                "env": environment,
                "owns_pids": False,
                "owns_uid": False,
                "watch_disk": True,
                "hide": [],
                "confine": None,
            },
            release=folder.remove,
        )

    def probes(self) -> tuple[Probe, ...]:
        return (Probe("isolation", True, "none, as asked for"),)
