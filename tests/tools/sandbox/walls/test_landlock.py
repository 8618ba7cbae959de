"""The launcher of Landlock: users, folders, and what it says that it lacks."""

import ctypes
import os
import struct
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from agentgym.errors import UsageError
from agentgym.tools.sandbox.base import Level, SandboxSpec
from agentgym.tools.sandbox.host.provider import LocalProvider
from agentgym.tools.sandbox.inside import landlock
from agentgym.tools.sandbox.walls import leftovers, uids
from agentgym.tools.sandbox.walls.folder import make_folder
from agentgym.tools.sandbox.walls.landlock import LandlockLauncher
from agentgym.tools.sandbox.walls.launch import Launcher
from agentgym.tools.sandbox.walls.marks import PREFIX, is_left, mark

IS_ROOT = os.geteuid() == 0
pytestmark = pytest.mark.skipif(landlock.version() == 0, reason="this kernel has no Landlock")
as_root = pytest.mark.skipif(not IS_ROOT, reason="only root has other users")


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for temporary files of its own, which other users may enter."""
    with tempfile.TemporaryDirectory(prefix="agentgym-test-") as name:
        os.chmod(name, 0o1777)
        monkeypatch.setattr(tempfile, "tempdir", name)
        yield Path(name)


@pytest.fixture
async def provider(temporary: Path) -> AsyncIterator[LocalProvider]:
    made = LocalProvider(LandlockLauncher(), warm=0)
    yield made
    await made.aclose()


def test_it_is_a_launcher():
    """Of the second level."""
    launcher: Launcher = LandlockLauncher()

    assert launcher.level is Level.LANDLOCK
    assert [probe for probe in launcher.probes() if not probe.ok] == []


def test_a_kernel_without_landlock_is_said_so():
    """With what would help."""
    probe, *_ = LandlockLauncher(abi=0).probes()

    assert not probe.ok
    assert "5.13" in probe.fix


@as_root
async def test_every_sandbox_has_a_user_of_its_own(provider: LocalProvider):
    """Processes of one user could signal each other."""
    sandboxes = [await provider.open() for _ in range(3)]
    results = [await sandbox.run_cell("import os; os.getresuid()") for sandbox in sandboxes]

    users = {user for result in results for user in result.value}
    assert len(users) == 3
    assert all(user in uids.available().free for user in users)


async def test_code_keeps_no_capability_but_that_to_read(provider: LocalProvider):
    """And that one only where Python lies in a private folder."""
    sandbox = await provider.open()
    cap = "import ctypes; b = (ctypes.c_uint * 6)(); h = (ctypes.c_uint * 2)(0x20080522, 0)\n"
    result = await sandbox.run_cell(
        f"{cap}ctypes.CDLL(None).capget(h, b); [b[i] for i in range(6)]"
    )

    expected = 0
    if IS_ROOT and uids.closed_to_others(_needed()):
        expected = 1 << (2 if uids.has_capability(2) else 1)
    assert result.value == [expected] * 3 + [0] * 3


async def test_nothing_is_left_of_a_sandbox(provider: LocalProvider, temporary: Path):
    """Files with strange modes, in folders however deep, are no more than others."""
    sandbox = await provider.open()
    assert len(os.listdir(temporary)) == 1
    deep = "for i in range(1500): os.mkdir('d'); os.chdir('d')"
    result = await sandbox.run_cell(f"import os; os.mkdir('closed', 0); {deep}")
    await sandbox.close()

    assert result.outcome in ("error", "ok", "disk_limit"), result
    assert os.listdir(temporary) == []


@as_root
def test_what_is_left_of_a_user_is_ended_before_its_folder_goes(temporary: Path):
    """Where the runner could not do it, because it was killed."""
    uid = uids.available().take()
    folder = make_folder([], owner=uid)
    process = subprocess.Popen(["sleep", "60"], user=uid, group=uid, cwd=folder.workdir)
    leftovers.clear_up(uid, folder)

    assert process.wait(timeout=5) == -9
    assert not os.path.exists(folder.path)


def _marked(pid: int, started: str, namespace: str) -> str:
    return f"{PREFIX}{pid}-{started}-{namespace}-x"


def test_folders_of_dead_processes_are_swept(temporary: Path):
    """And no others: not those of a process that lives, or that may live elsewhere."""
    pid, _, namespace, _ = f"{mark()}x".removeprefix(PREFIX).split("-")
    gone = subprocess.Popen(["true"])
    gone.wait()
    swept = [_marked(gone.pid, "1", namespace), _marked(int(pid), "1", namespace)]
    kept = [f"{mark()}x", _marked(gone.pid, "1", "7"), "agentgym-sandbox-notes", "agentgym-else"]
    for name in (*swept, *kept):
        (temporary / name / "work").mkdir(parents=True)

    assert leftovers.sweep() == 2
    assert sorted(os.listdir(temporary)) == sorted(kept)
    assert not is_left(f"{mark()}x")


@as_root
def test_folders_of_other_users_are_not_swept(temporary: Path):
    """Whoever made one could lead root astray."""
    namespace = mark().removeprefix(PREFIX).split("-")[2]
    theirs = temporary / _marked(2**22 + 1, "1", namespace)
    theirs.mkdir()
    os.chown(theirs, 12345, 12345)
    (temporary / _marked(2**22 + 2, "1", namespace)).symlink_to(theirs)

    assert leftovers.sweep() == 0
    assert theirs.exists()


@as_root
def test_root_that_cannot_pass_on_the_right_to_read_is_told(temporary: Path):
    """Rather than a sandbox that cannot start."""
    if not uids.closed_to_others(_needed()):
        pytest.skip("other users may read this Python")
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        _keep_only(1 << 6 | 1 << 7)
        try:
            LandlockLauncher().prepare(SandboxSpec(), lambda python: [python])
        except UsageError as error:
            os.write(write, str(error).encode())
        os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    said = os.read(read, 1000).decode()
    os.close(read)

    assert "may not enter" in said
    assert "chmod" in said


def test_it_says_what_it_lacks():
    """More on older kernels, unless every sandbox has a user of its own."""
    new, old = " ".join(LandlockLauncher(abi=7).gaps), " ".join(LandlockLauncher(abi=4).gaps)

    assert "shares this kernel" in new
    assert ("signal nothing but themselves" in old) == (not uids.available().free)
    assert "signal nothing" not in new


def _needed() -> list[str]:
    from agentgym.tools.sandbox.walls.layout import this_machine

    return [*this_machine().roots, tempfile.gettempdir()]


def _keep_only(mask: int) -> None:
    header = struct.pack("Ii", 0x20080522, 0)
    assert ctypes.CDLL(None).capset(header, struct.pack("6I", mask, mask, 0, 0, 0, 0)) == 0
