"""A user of its own for every sandbox."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentgym.errors import SandboxError
from agentgym.tools.sandbox.walls.uids import (
    Uids,
    available,
    can_change,
    change_to,
    closed_to_others,
    give_back,
    is_real_root,
)


def test_no_two_get_the_same() -> None:
    """Until all are taken; what was given back can be had again."""
    few = Uids(range(7_000, 7_003), "")
    taken = {few.take() for _ in few.free}
    with pytest.raises(SandboxError, match="no uid is left"):
        few.take()
    give_back(7_001)
    again = few.take()
    for uid in taken:
        give_back(uid)

    assert taken == set(few.free)
    assert again == 7_001


def test_an_ordinary_user_has_none() -> None:
    """Whoever asks nevertheless learns why."""
    found = available()
    if os.geteuid() == 0 and found.free:
        assert is_real_root() or found.free.stop <= 65_536
        found = Uids(range(0), "uid 1000 cannot change users")

    with pytest.raises(SandboxError, match=r"cannot change users|without"):
        found.take()


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that everyone can enter; pytest's own are private."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def test_a_private_folder_on_the_way_is_found(public: Path) -> None:
    """The outermost one, which is where the search ends for a stranger."""
    folder = public / "home" / "python" / "bin"
    folder.mkdir(parents=True)
    before = closed_to_others(["/usr/bin", str(folder)])
    (public / "home").chmod(0o700)
    (public / "home" / "python").chmod(0o700)

    assert before is None
    assert closed_to_others(["/usr/bin", str(folder)]) == str(public / "home")


def test_a_file_that_is_not_for_everyone_is_found(public: Path) -> None:
    file = public / "python"
    file.write_text("")
    file.chmod(0o640)
    closed = closed_to_others([str(file)])
    file.chmod(0o644)

    assert closed == str(file)
    assert closed_to_others([str(file)]) is None


@pytest.mark.skipif(not can_change(), reason="this process cannot change users")
def test_a_program_that_changed_users_has_nothing_left() -> None:
    """No group, no capability, and no way to get one."""
    with open("/proc/self/status") as file:
        ours = file.read()
    command = [*change_to(45_678), "/bin/cat", "/proc/self/status"]
    theirs = subprocess.run(command, capture_output=True, text=True, check=True).stdout

    lines = dict(line.split(":\t", 1) for line in theirs.splitlines())
    assert set(lines["Uid"].split()) == set(lines["Gid"].split()) == {"45678"}
    assert lines["Groups"].strip() == ""
    assert lines["NoNewPrivs"] == "1"
    assert {int(lines[f"Cap{which}"], 16) for which in ("Inh", "Prm", "Eff", "Bnd", "Amb")} == {0}
    assert "CapEff:\t0000000000000000" not in ours
