"""The sandbox of a command: settled before anything dear is loaded, if it will be needed."""

from collections.abc import Sequence

from agentgym.commands.sections import SandboxSection
from agentgym.tools.sandbox.base import SandboxSpec


def settle_sandbox(
    settings: SandboxSection, specs: Sequence[SandboxSpec], *, quiet: bool = False
) -> None:
    """Say where this process takes its sandboxes from; try it if some will be opened.

    Args:
        settings: of the command.
        specs: what will be opened, as far as it is known.
        quiet: do not print what was chosen.

    Raises:
        UsageError: no sandbox that would do works here, or a package for one is not installed.
    """
    from agentgym.tools.sandbox import shared
    from agentgym.tools.sandbox.walls.packages import entries

    shared.configure(settings.sandbox_settings, quiet=quiet)
    for spec in specs:
        if settings.sandbox != "e2b":
            entries(spec.packages)
    if specs:
        shared.choose_now()
