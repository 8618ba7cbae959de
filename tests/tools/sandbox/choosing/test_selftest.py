"""The self-test finds what is missing: with one protection gone, the attack it stops succeeds."""

import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from agentgym.errors import SandboxError
from agentgym.tools.sandbox.base import Level, Probe, SandboxSpec
from agentgym.tools.sandbox.choosing.selftest import self_test
from agentgym.tools.sandbox.host.provider import LocalProvider
from agentgym.tools.sandbox.walls.bwrap_find import launchers
from agentgym.tools.sandbox.walls.launch import Launch, Launcher
from agentgym.tools.sandbox.walls.unsafe import UnsafeLauncher

Words = list[str]


@dataclass
class Weakened:
    """A launcher whose command line was changed."""

    inner: Launcher
    change: Callable[[Launch], Launch]
    backend: str = "weakened"
    level: Level = Level.NAMESPACES
    gaps: tuple[str, ...] = ()

    def prepare(self, spec: SandboxSpec, runner: Callable[[str], Sequence[str]]) -> Launch:
        return self.change(self.inner.prepare(spec, runner))

    def probes(self) -> tuple[Probe, ...]:
        return ()


def _without(option: str, num: int = 0) -> Callable[[Launch], Launch]:
    """An option of bubblewrap is left out, with so many values."""

    def change(launch: Launch) -> Launch:
        words = list(launch.argv)
        place = words.index(option)
        return replace(launch, argv=words[:place] + words[place + 1 + num :])

    return change


def _with(*more: str) -> Callable[[Launch], Launch]:
    """Bubblewrap gets more to mount, before the root is closed."""

    def change(launch: Launch) -> Launch:
        words = list(launch.argv)
        place = words.index("--proc")
        return replace(launch, argv=[*words[:place], *more, *words[place:]])

    return change


def _entered(path: Path) -> Words:
    """Folders on the way that anyone can enter."""
    folders = reversed(path.parents[:-1])
    return [word for folder in folders for word in ("--perms", "0755", "--dir", str(folder))]


def _leaking(launch: Launch) -> Launch:
    return replace(launch, env={**launch.env, "HF_TOKEN": "secret"})


MUTATIONS = {
    "variables are hidden": _leaking,
    "network is closed": _without("--unshare-net"),
    "no memory beside the limit": _without("--seccomp", 1),
}


async def _failed(launcher: Launcher) -> set[str]:
    provider = LocalProvider(launcher, warm=0)
    try:
        return {probe.name for probe in await self_test(provider) if not probe.ok}
    finally:
        await provider.aclose()


@pytest.mark.parametrize(("name", "change"), MUTATIONS.items())
async def test_without_a_protection_its_attack_succeeds(
    name: str, change: Callable[[Launch], Launch]
) -> None:
    """Else the level would be claimed by a test that cannot fail."""
    failed = await _failed(Weakened(next(launchers()), change))

    assert name in failed


async def test_a_folder_of_the_host_that_can_be_written_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is seen from outside: the file has changed, whatever the code says."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        os.chmod(folder, 0o755)
        monkeypatch.setattr(tempfile, "tempdir", folder)
        change = _with(*_entered(Path(folder)), "--bind", folder, folder)
        failed = await _failed(Weakened(next(launchers()), change))

    assert {"files cannot be read", "files cannot be changed", "network is closed"} <= failed


async def test_without_any_wall_the_attacks_succeed() -> None:
    """What limits alone can hold is held."""
    failed = await _failed(UnsafeLauncher())

    assert failed >= {
        "files cannot be read",
        "files cannot be changed",
        "variables are hidden",
        "processes are hidden",
        "processes cannot be killed",
        "network is closed",
        "no memory beside the limit",
    }
    assert not failed & {"limits are set", "memory is limited", "disk is limited", "attacks"}


async def test_a_sandbox_that_does_not_start_is_no_level() -> None:
    """One probe says what the launcher said, and what would help."""

    def broken(launch: Launch) -> Launch:
        return replace(launch, argv=["/bin/sh", "-c", "echo 'bwrap: Unknown option --size' >&2"])

    provider = LocalProvider(Weakened(next(launchers()), broken), warm=0)
    (probe,) = await self_test(provider)
    await provider.aclose()

    assert not probe.ok
    assert "Unknown option --size" in probe.reason
    assert "too old" in probe.fix


async def test_a_machine_without_users_left_is_no_level() -> None:
    """What a launcher refuses is told, not raised."""

    def refused(launch: Launch) -> Launch:
        launch.release()
        raise SandboxError("no uid is left")

    provider = LocalProvider(Weakened(UnsafeLauncher(), refused), warm=0)
    (probe,) = await self_test(provider)
    await provider.aclose()

    assert (probe.name, probe.ok) == ("start", False)
    assert "no uid is left" in probe.reason
