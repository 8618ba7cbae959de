"""A few attacks on a back end before it is trusted: a level is claimed only where they fail.

That a program is installed, or new enough, says little: what containers and kernels forbid shows
when it is used.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

from agentgym.errors import SandboxError, UsageError
from agentgym.tools.sandbox.base import (
    Call,
    ExecResult,
    Outcome,
    Probe,
    Sandbox,
    SandboxProvider,
    SandboxSpec,
)
from agentgym.tools.sandbox.choosing import mini_attacks
from agentgym.tools.sandbox.choosing.aims import Aims
from agentgym.tools.sandbox.limits import MIB, Limits
from agentgym.tools.sandbox.walls.hints import hint

LIMITS = Limits(cpu_s=4, memory_mb=256, processes=8, disk_mb=4, file_mb=1, open_files=64)
_SOURCE = Path(mini_attacks.__file__).read_text(encoding="utf-8")
_SPARE = 4
"""Processes of the sandbox's own beside those of the code."""


async def self_test(provider: SandboxProvider) -> tuple[Probe, ...]:
    """What code got in a sandbox of this provider; takes about 0.3 s.

    Every probe is ok if the attack failed.
    """
    try:
        sandbox = await provider.open(SandboxSpec(limits=LIMITS))
    except (SandboxError, UsageError) as error:
        return (Probe("start", False, str(error), hint(str(error))),)
    try:
        return tuple(await _attack(sandbox))
    except (SandboxError, UsageError) as error:
        return (Probe("run", False, str(error), hint(str(error))),)
    finally:
        await sandbox.close()


async def _attack(sandbox: Sandbox) -> list[Probe]:
    with Aims() as aims:
        attempt = Call(function="attempt", args=(aims.known(LIMITS),))
        multiply = Call(function="multiply", args=(LIMITS.processes + 2 * _SPARE,))
        fill = Call(function="fill", args=(MIB // 2, 2 * LIMITS.disk_mb))
        tried, multiplied, filled = await sandbox.run_tests(_SOURCE, [attempt, multiply, fill])
        harm = aims.damage()
    return [
        *_probes(tried, harm),
        _bounded("processes are limited", multiplied, LIMITS.processes + _SPARE, "processes"),
        _bounded("disk is limited", filled, 2 * LIMITS.disk_mb, "files of 0.5 MB"),
    ]


def _probes(tried: ExecResult, harm: Mapping[str, str]) -> Iterator[Probe]:
    if not isinstance(tried.value, dict):
        reason = f"{tried.outcome}: {tried.evidence or tried.stderr[-200:]}"
        yield Probe("attacks", False, f"could not be tried: {reason}")
        return
    for name, got in ({**tried.value, **harm}).items():
        yield Probe(str(name), got == "", str(got)[:200] or "held")


def _bounded(name: str, result: ExecResult, most: int, what: str) -> Probe:
    """Whether a number stayed below a limit, or the code was stopped at it."""
    if result.outcome in (Outcome.PROCESS_LIMIT, Outcome.DISK_LIMIT):
        return Probe(name, True, "the code was stopped")
    if not isinstance(result.value, int):
        return Probe(name, False, f"could not be tried: {result.outcome}: {result.evidence}")
    return Probe(name, result.value <= most, f"{result.value} {what}")
