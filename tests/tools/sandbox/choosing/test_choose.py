"""Which sandbox a run gets, what it is told of it, and when it is refused."""

import asyncio
from pathlib import Path

import pytest
from sandbox_kit import launcher

from agentgym.errors import UsageError
from agentgym.tools.sandbox.base import Level
from agentgym.tools.sandbox.choosing.choose import Choice, choose
from agentgym.tools.sandbox.settings import SandboxSettings
from agentgym.tools.sandbox.walls import bwrap_find

REFUSES = "bwrap: No permissions to create new namespace, likely because the kernel does not allow"
MASKED = "bwrap: Can't mount proc on /newroot/proc: Operation not permitted"


def _choose(settings: SandboxSettings) -> Choice:
    async def choose_and_close() -> Choice:
        choice = await choose(settings)
        await choice.provider.aclose()
        return choice

    return asyncio.run(choose_and_close())


def _only_bwrap(monkeypatch: pytest.MonkeyPatch, folder: Path, says: str | None) -> None:
    """Put a bubblewrap that fails in the place of this machine's; `None`: there is none."""
    program = folder / "bwrap"
    if says is not None:
        options = "--size --perms --as-pid-1 --die-with-parent --seccomp"
        helps = f'case "$1" in --help|--version) echo "bubblewrap 0.8.0 {options}";; '
        program.write_text(f'#!/bin/sh\n{helps}*) echo "{says}" >&2; exit 1;; esac\n')
        program.chmod(0o755)
        folder.chmod(0o755)
    monkeypatch.setattr(bwrap_find, "_SYSTEM", str(program))
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setattr(bwrap_find, "find_spec", lambda name: None)


def test_the_best_is_chosen_and_says_what_it_lacks() -> None:
    """One line, with the level and the gaps."""
    launcher("bwrap")
    choice = _choose(SandboxSettings())

    assert choice.report.level == Level.NAMESPACES
    assert choice.report.usable
    assert all(probe.ok for probe in choice.report.probes)
    assert choice.line.startswith("sandbox: bwrap (level 3/4): own files, processes, users")
    assert "Not covered: shares this kernel; total memory" in choice.line
    assert "For level 4: --sandbox e2b" in choice.line
    assert "\n" not in choice.line


@pytest.mark.parametrize(
    ("says", "advice"),
    [
        (None, "apt install bubblewrap"),
        (REFUSES, "unprivileged_userns_clone"),
        (MASKED, "systempaths=unconfined"),
    ],
)
def test_a_step_down_is_said_with_the_way_back_up(
    says: str | None, advice: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """No bubblewrap; one that may not make namespaces; one that cannot mount /proc."""
    launcher("landlock")
    _only_bwrap(monkeypatch, tmp_path, says)
    choice = _choose(SandboxSettings())

    assert choice.report.backend == "landlock"
    assert choice.line.startswith("sandbox: landlock (level 2/4): ")
    assert f"For level 3: {choice.rejected[0].probes[-1].fix}" in choice.line
    assert advice in choice.line


def test_below_the_lowest_level_it_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """With the flag, what was seen, and what would help."""
    _only_bwrap(monkeypatch, tmp_path, REFUSES)
    with pytest.raises(UsageError) as caught:
        _choose(SandboxSettings(min_level=3))

    message = str(caught.value)
    assert "--sandbox-min-level 3" in message
    assert "No permissions to create new namespace" in message
    assert "unprivileged_userns_clone" in message
    assert "\n" not in message


def test_a_back_end_asked_for_by_name_is_not_replaced(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Nobody who asked for namespaces gets less."""
    _only_bwrap(monkeypatch, tmp_path, None)
    with pytest.raises(UsageError, match=r"\(--sandbox bwrap\): bwrap: program: no bwrap"):
        _choose(SandboxSettings(backend="bwrap"))


def test_without_isolation_only_by_its_name() -> None:
    """And then it says so."""
    choice = _choose(SandboxSettings(backend="unsafe-subprocess"))

    assert choice.report.level == Level.NONE
    assert choice.line.startswith("sandbox: unsafe-subprocess (level 1/4): NO ISOLATION: code can")


@pytest.mark.parametrize(
    ("settings", "best"),
    [
        (SandboxSettings(backend="unsafe-subprocess", min_level=2), 1),
        (SandboxSettings(backend="landlock", min_level=3), 2),
        (SandboxSettings(min_level=4), 3),
    ],
)
def test_what_a_back_end_can_never_give_is_refused(settings: SandboxSettings, best: int) -> None:
    """Before anything is tried."""
    with pytest.raises(UsageError, match=f"gives level {best} at most") as caught:
        _choose(settings)

    assert "--sandbox e2b" in str(caught.value)


def test_other_systems_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Mac is pointed to the remote sandbox."""
    monkeypatch.setattr("sys.platform", "darwin")
    with pytest.raises(UsageError, match=r"no sandbox for darwin: .*--sandbox e2b"):
        _choose(SandboxSettings())


def test_unknown_machines_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no table of system calls for them: never "allow all"."""
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    with pytest.raises(UsageError, match="riscv64"):
        _choose(SandboxSettings())


def test_e2b_without_a_key_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """With where to get one."""
    monkeypatch.delenv("E2B_API_KEY", raising=False)
    with pytest.raises(UsageError, match="E2B_API_KEY"):
        _choose(SandboxSettings(backend="e2b"))
