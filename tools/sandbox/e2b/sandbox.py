"""A sandbox whose runner is on a machine of E2B: the same calls over another connection."""

from collections.abc import Awaitable, Callable

from agentgym.tools.sandbox.base import Level, SandboxSpec
from agentgym.tools.sandbox.e2b.machine import Machine
from agentgym.tools.sandbox.host.sandbox import RunnerSandbox
from agentgym.tools.sandbox.host.slots import Slots


class _Elsewhere:
    """Its name and level."""

    backend = "e2b"
    level = Level.VM


class E2BSandbox(RunnerSandbox):
    """See `Sandbox`. Its machine has cores of its own, so no call waits for those of this one."""

    def __init__(
        self,
        spec: SandboxSpec,
        connect: Callable[[SandboxSpec], Awaitable[Machine]],
        machine: Machine,
        *,
        forget: Callable[[RunnerSandbox], None],
    ) -> None:
        super().__init__(
            _Elsewhere(),
            spec,
            connect=connect,
            connection=machine,
            slots=Slots(1),
            forget=forget,
        )
        self.id = machine.id
