"""The provider that all sandboxes of this process come from.

Nothing is probed or started before the first one is asked for, or before a run that will ask. What
came of it, a refusal too, holds for the process.
"""

import asyncio
import sys
from typing import Any

from agentgym.errors import UsageError
from agentgym.threads import Worker, run_coroutine
from agentgym.tools.sandbox.base import SandboxProvider
from agentgym.tools.sandbox.choosing.choose import Choice, choose
from agentgym.tools.sandbox.host.provider import LocalProvider
from agentgym.tools.sandbox.settings import SandboxSettings


class _Shared:
    """One choice, made by one thread for all that wait for it."""

    def __init__(self) -> None:
        self.settings = SandboxSettings()
        self.quiet = False
        self.outcome: Choice | UsageError | None = None
        self.worker = Worker()

    def make(self) -> Choice:
        """Choose, and say once what was chosen; in the worker.

        Raises:
            UsageError: there is nothing to choose.
        """
        if self.outcome is None:
            try:
                self.outcome = asyncio.run(choose(self.settings))
            except UsageError as error:
                self.outcome = error
            else:
                if not self.quiet:
                    print(self.outcome.line, file=sys.stderr, flush=True)
        if isinstance(self.outcome, UsageError):
            raise self.outcome
        return self.outcome


_shared = _Shared()


def configure(settings: SandboxSettings, *, quiet: bool = False) -> None:
    """Say what this process wants; what it had of another kind is closed.

    Args:
        settings: of all sandboxes opened from now on.
        quiet: choose without saying what was chosen.
    """
    _shared.quiet = quiet
    if settings != _shared.settings:
        close_shared()
        _shared.settings = settings


def wanted() -> SandboxSettings:
    """What was configured last, for processes that are to do the same."""
    return _shared.settings


async def shared_provider() -> SandboxProvider:
    """Where sandboxes come from; chosen and tested at the first call.

    Raises:
        UsageError: no sandbox that would do works here.
    """
    if isinstance(_shared.outcome, Choice):
        return _shared.outcome.provider
    return (await _shared.worker.run(_shared.make)).provider


def choose_now() -> Choice:
    """Make the choice, for a run that will need it.

    Raises:
        UsageError: no sandbox that would do works here.
    """
    return _shared.worker.submit(_shared.make).result()


def shared_report() -> dict[str, Any]:
    """What was chosen, for a run's metadata; empty if nothing was."""
    if not isinstance(_shared.outcome, Choice):
        return {}
    backend, level, _, _, gaps = _shared.outcome.report
    return {"backend": backend, "level": int(level), "not_covered": list(gaps)}


async def cool_shared() -> None:
    """End the sandboxes that are kept warm, for whoever counts what else is open."""
    if isinstance(_shared.outcome, Choice) and isinstance(
        provider := _shared.outcome.provider, LocalProvider
    ):
        await provider.cool()


def close_shared() -> None:
    """End all sandboxes of the shared provider; the next call of `shared_provider` chooses anew."""
    outcome, _shared.outcome = _shared.outcome, None
    if isinstance(outcome, Choice):
        run_coroutine(outcome.provider.aclose())
