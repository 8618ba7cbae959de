"""Which back end a run gets: the first one, best first, that withstands the self-test.

The answer is one line that says what it holds, what it does not, and what would raise it. There is
no silent step down: below the lowest level that was asked for the run is refused.
"""

import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from agentgym.errors import UsageError
from agentgym.tools.sandbox.base import Level, Probe, ProbeReport, SandboxProvider
from agentgym.tools.sandbox.host.provider import LocalProvider
from agentgym.tools.sandbox.settings import UNSAFE, SandboxSettings
from agentgym.tools.sandbox.walls import bwrap_find, syscalls
from agentgym.tools.sandbox.walls.launch import Launcher
from agentgym.tools.sandbox.walls.unsafe import UnsafeLauncher

FLAG, LEVEL_FLAG = "--sandbox", "--sandbox-min-level"
E2B = f"{FLAG} e2b (pip install 'agentgym-rl[e2b]', and a key in E2B_API_KEY)"
_MOST = {
    "auto": Level.NAMESPACES,
    "bwrap": Level.NAMESPACES,
    "landlock": Level.LANDLOCK,
    "e2b": Level.VM,
    UNSAFE: Level.NONE,
}
_HOLDS = {
    Level.LANDLOCK: "files and network closed, system calls filtered",
    Level.NAMESPACES: "own files, processes, users and network, system calls filtered",
    Level.VM: "another machine",
}


class Choice(NamedTuple):
    """What a run gets."""

    provider: SandboxProvider
    report: ProbeReport
    rejected: tuple[ProbeReport, ...] = ()
    """What was tried before."""

    @property
    def line(self) -> str:
        """For the start of a run."""
        backend, level, _, _, gaps = self.report
        if level is Level.NONE:
            return f"sandbox: {backend} (level {level:d}/4): NO ISOLATION: {'; '.join(gaps)}."
        text = f"sandbox: {backend} (level {level:d}/4): {_HOLDS[level]}."
        if gaps:
            text += f" Not covered: {'; '.join(gaps)}."
        better = [report for report in self.rejected if report.level > level]
        if better:
            return f"{text} For level {better[0].level:d}: {_advice(better)}."
        if level is Level.VM:
            return text
        return f"{text} For level 4: {FLAG} e2b."


async def choose(settings: SandboxSettings) -> Choice:
    """The best sandbox of those that were asked for.

    Raises:
        UsageError: none works here, or the best one is below the level that was asked for.
    """
    if settings.floor > (most := _MOST[settings.backend]):
        gives = f"{FLAG} {settings.backend} gives level {most:d} at most"
        raise UsageError(f"{LEVEL_FLAG} {settings.floor:d}: {gives}; level 4 is {E2B}")
    if settings.backend == "e2b":
        return await _remote(settings)
    refuse_other_systems()
    rejected = absent(settings)
    for launcher in launchers(settings):
        if launcher.level < settings.floor:
            break
        report = await inspect(launcher)
        if report.usable:
            provider = LocalProvider(launcher, slots=settings.slots, warm=settings.warm)
            return Choice(provider, report, tuple(rejected))
        rejected.append(report)
    raise UsageError(_refusal(settings, rejected))


def launchers(settings: SandboxSettings) -> Iterator[Launcher]:
    """What may be used of this machine, best first."""
    if settings.backend in ("auto", "bwrap"):
        yield from bwrap_find.launchers()
    if settings.backend in ("auto", "landlock"):
        from agentgym.tools.sandbox.walls.landlock import (
            LandlockLauncher,  # asks the kernel of Linux
        )

        yield LandlockLauncher()
    if settings.backend == UNSAFE:
        yield UnsafeLauncher()


def absent(settings: SandboxSettings) -> list[ProbeReport]:
    """Reports on back ends of which there is nothing to be tried."""
    if settings.backend not in ("auto", "bwrap") or any(True for _ in bwrap_find.launchers()):
        return []
    return [ProbeReport("bwrap", Level.NAMESPACES, False, (bwrap_find.absence(),))]


async def inspect(launcher: Launcher) -> ProbeReport:
    """What a launcher can do here: its own probes, then the self-test."""
    provider = LocalProvider(launcher, warm=0)
    try:
        return await provider.probe()
    finally:
        await provider.aclose()


def refuse_other_systems() -> None:
    """Raise a `UsageError` where there is no wall for local code."""
    if sys.platform != "linux":
        raise UsageError(f"there is no sandbox for {sys.platform}: use Linux, or {E2B}")
    syscalls.machine(syscalls.this_machine())


async def _remote(settings: SandboxSettings) -> Choice:
    from agentgym.tools.sandbox.e2b.provider import E2BProvider

    provider = E2BProvider() if settings.slots is None else E2BProvider(machines=settings.slots)
    report = await provider.probe()
    if not report.usable:
        await provider.aclose()
        raise UsageError(_refusal(settings, [report]))
    return Choice(provider, report)


def _refusal(settings: SandboxSettings, rejected: Sequence[ProbeReport]) -> str:
    wanted = f"{FLAG} {settings.backend}"
    if settings.min_level is not None:
        wanted += f" with {LEVEL_FLAG} {settings.min_level}"
    tried = "; ".join(f"{report.backend}: {_why(report)}" for report in rejected)
    text = (
        f"no sandbox of level {settings.floor:d} or more works here ({wanted}): {tried or 'none'}"
    )
    if advice := _advice(rejected):
        text += f". To get one: {advice}"
    return f"{text}. `agentgym doctor` tells more"


def _why(report: ProbeReport) -> str:
    failed = _failed(report)
    return f"{failed.name}: {failed.reason}"


def _failed(report: ProbeReport) -> Probe:
    return next(probe for probe in report.probes if not probe.ok)


def _advice(rejected: Sequence[ProbeReport]) -> str:
    """What would help, from the first of the rejected that knows."""
    fixes = (_failed(report).fix for report in rejected)
    return next((fix for fix in fixes if fix), "see `agentgym doctor`")
