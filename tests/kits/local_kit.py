"""Sandboxes of this machine for tests: one provider per level that starts here, for all of them."""

from functools import cache

from agentgym.tools.sandbox.choose import launchers as known_launchers
from agentgym.tools.sandbox.launch import Launcher
from agentgym.tools.sandbox.provider import LocalProvider
from agentgym.tools.sandbox.settings import SandboxSettings
from agentgym.tools.sandbox.starting import try_start


@cache
def launchers() -> dict[str, Launcher]:
    """What starts here, by name of the level, best first."""
    found: dict[str, Launcher] = {}
    for launcher in known_launchers(SandboxSettings()):
        if launcher.level.name.lower() not in found and try_start(launcher).ok:
            found[launcher.level.name.lower()] = launcher
    return found


@cache
def provider(level: str | None = None) -> LocalProvider:
    """The shared provider of a level, the best one if left out; nothing is kept warm."""
    known = launchers()
    assert known, "no sandbox starts on this machine"
    return LocalProvider(known[level or next(iter(known))], warm=0)
