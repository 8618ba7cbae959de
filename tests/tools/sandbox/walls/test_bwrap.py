"""The launcher of bubblewrap: every way of changing users that works here, and what goes in."""

import asyncio
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from agentgym.errors import UsageError
from agentgym.tools.sandbox.base import Outcome, Probe, SandboxSpec, Script
from agentgym.tools.sandbox.choosing.choose import inspect
from agentgym.tools.sandbox.host.provider import LocalProvider
from agentgym.tools.sandbox.limits import Limits
from agentgym.tools.sandbox.walls import bwrap
from agentgym.tools.sandbox.walls.bwrap import BwrapLauncher, Way
from agentgym.tools.sandbox.walls.bwrap_find import launchers, programs
from agentgym.tools.sandbox.walls.launch import Launch
from agentgym.tools.sandbox.walls.layout import this_machine
from agentgym.tools.sandbox.walls.packages import entries
from agentgym.tools.sandbox.walls.starting import data_fds, run_launch

LAUNCHERS = [pytest.param(found, id=found.way.name.lower()) for found in launchers()]
if not LAUNCHERS:
    pytest.skip("bubblewrap is not installed", allow_module_level=True)
every_way = pytest.mark.parametrize("launcher", LAUNCHERS)


def _run(launcher: BwrapLauncher, code: str, spec: SandboxSpec | None = None) -> str:
    launch = launcher.prepare(spec or SandboxSpec(), lambda python: [python, "-P", "-c", code])
    try:
        ended = run_launch(launch)
    finally:
        launch.release()
    assert ended.returncode == 0, ended.stderr.decode()
    return ended.stdout.decode()


def _failed(launcher: BwrapLauncher) -> list[Probe]:
    return [probe for probe in asyncio.run(inspect(launcher)).probes if not probe.ok]


@every_way
def test_every_probe_holds(launcher: BwrapLauncher) -> None:
    """Each way of changing users is a wall."""
    assert _failed(launcher) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can forget to change users")
def test_without_another_user_root_is_found_out() -> None:
    """What a user namespace calls 1000 is still the machine's root."""
    failed = {probe.name for probe in _failed(BwrapLauncher(programs()[0], Way.NONE))}

    assert failed == {"not root", "settings of the machine cannot be changed"}


@every_way
def test_nothing_of_the_host_is_inherited(
    launcher: BwrapLauncher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not by bubblewrap either, whose own environment its child could read."""
    monkeypatch.setenv("HF_TOKEN", "secret")
    launch = launcher.prepare(SandboxSpec(), lambda python: [python])
    for fd in launch.pass_fds:
        os.close(fd)
    launch.release()

    assert "HF_TOKEN" not in launch.env
    assert not any("secret" in word for word in launch.argv)


@every_way
def test_only_a_few_folders_can_be_written(launcher: BwrapLauncher) -> None:
    """All else is read-only, and what can be written has a size."""
    code = (
        "import os\n"
        "def tried(folder):\n"
        "    try:\n"
        "        open(os.path.join(folder, 'x'), 'w').close()\n"
        "    except OSError:\n"
        "        return False\n"
        "    return True\n"
        "folders = [f for f, *_ in os.walk('/') if f.count('/') < 4 and f[:6] != '/proc/']\n"
        "print([folder for folder in folders if tried(folder)])\n"
        "print([os.statvfs(f).f_frsize * os.statvfs(f).f_blocks for f in ('/work', '/tmp')])\n"
    )
    spec = SandboxSpec(limits=Limits(disk_mb=3))

    assert sorted(eval(_run(launcher, code, spec).splitlines()[0])) == ["/dev/shm", "/tmp", "/work"]
    assert eval(_run(launcher, code, spec).splitlines()[1]) == [3 * 2**20, 3 * 2**20]


@every_way
async def test_the_disk_limit_is_one_for_all_folders(launcher: BwrapLauncher) -> None:
    """Each can be filled, not all of them."""
    fill = "for i in {0}: open(i, 'wb').write(bytes(2 ** 20))\nimport time; time.sleep(0.5)"
    one, two = (fill.format([f"{f}/{i}" for f in folders for i in range(6)]) for folders in
                (["/tmp"], ["/tmp", "/dev/shm"]))  # fmt: skip
    provider = LocalProvider(launcher, warm=0)
    sandbox = await provider.open(SandboxSpec(limits=Limits(disk_mb=8)))
    (fits,) = await sandbox.run_tests(one, [Script()])
    (too_much,) = await sandbox.run_tests(two, [Script()])
    await provider.aclose()

    assert fits.outcome is Outcome.OK
    assert too_much.outcome is Outcome.DISK_LIMIT


@every_way
def test_a_program_finds_its_surroundings(launcher: BwrapLauncher) -> None:
    """Names of users and hosts, devices, a shell, Python by its usual names."""
    code = (
        "import os, pwd, socket, subprocess\n"
        "print(pwd.getpwuid(os.getuid()).pw_name, socket.gethostname(), os.getcwd())\n"
        "print(socket.gethostbyname('localhost'), sorted(os.listdir('/dev')))\n"
        "print(subprocess.run('python3 -c \"print(1)\"; cat /dev/fd/0 < /dev/null; echo 2 | awk 1',"
        " shell=True, capture_output=True, text=True))\n"
    )
    names, places, ran = _run(launcher, code).splitlines()

    assert names == "sandbox sandbox /work"
    devices = [
        "fd",
        "full",
        "null",
        "random",
        "shm",
        "stderr",
        "stdin",
        "stdout",
        "urandom",
        "zero",
    ]
    assert places == f"127.0.0.1 {devices}"
    assert "returncode=0, stdout='1\\n2\\n', stderr=''" in ran


@every_way
def test_packages_are_all_that_can_be_imported_beside_the_library(launcher: BwrapLauncher) -> None:
    """By the code, and by a Python that it starts."""
    code = (
        "import os, sys\n"
        "sys.path.append('/packages')\n"
        "import numpy\n"
        "print(numpy.arange(3).sum(), sorted(os.listdir('/packages')), flush=True)\n"
        "os.system('python3 -c \"import numpy; print(numpy.__name__)\"')\n"
        "import pydantic\n"
    )
    spec = SandboxSpec(packages=("numpy",))
    launch = launcher.prepare(spec, lambda python: [python, "-P", "-c", code])
    ended = run_launch(launch)
    launch.release()

    assert ended.stdout.decode().splitlines() == ["3 ['numpy', 'numpy.libs']", "numpy"]
    assert b"No module named 'pydantic'" in ended.stderr


@pytest.fixture
def at_home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An interpreter's folder with a package that finds its library from where it lies."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        home = Path(folder)
        os.chmod(home, 0o755)
        site = home / "site-packages"
        (site / "atlas-1.0.dist-info").mkdir(parents=True)
        (site / "atlas-1.0.dist-info" / "METADATA").write_text("Name: atlas\nVersion: 1.0\n")
        (site / "atlas-1.0.dist-info" / "RECORD").write_text("atlas/__init__.py,,\n")
        (site / "atlas").mkdir()
        module = "import os\nlibrary = open(os.path.dirname(__file__) + '/../../library').read()\n"
        (site / "atlas" / "__init__.py").write_text(module)
        (site / "secret.py").write_text("answer = 42\n")
        (home / "library").write_text("found")
        layout = this_machine()
        ours = replace(layout, roots=(*layout.roots, folder), hidden=(*layout.hidden, str(site)))
        monkeypatch.setattr(bwrap, "this_machine", lambda: ours)
        monkeypatch.syspath_prepend(str(site))
        yield site
        entries.cache_clear()


@every_way
def test_a_package_of_the_interpreter_stays_where_it_is(
    launcher: BwrapLauncher, at_home: Path
) -> None:
    """With what it needs around it, and without what lies beside it."""
    spec = SandboxSpec(packages=("atlas",))
    code = (
        "import os, sys\n"
        f"sys.path.append({str(at_home)!r})\n"
        "import atlas\n"
        f"print(atlas.library, os.listdir({str(at_home)!r}))\n"
        f"try:\n    open({str(at_home / 'x')!r}, 'w')\n"
        "except OSError as error:\n    print(error.strerror)\n"
    )
    launch = launcher.prepare(spec, lambda python: [python, "-c", code])
    ended = run_launch(launch)
    launch.release()

    said = ended.stdout.decode().splitlines()
    assert said == ["found ['atlas']", "Read-only file system"], ended.stderr
    assert launch.config["import_paths"] == [str(at_home)]


@every_way
def test_a_package_that_is_missing_takes_nothing(launcher: BwrapLauncher) -> None:
    """Neither a descriptor nor a uid."""
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(UsageError, match="'no-such-package' is not installed"):
        launcher.prepare(SandboxSpec(packages=("no-such-package",)), lambda python: [python])

    assert len(os.listdir("/proc/self/fd")) == before


@every_way
def test_no_two_sandboxes_share_a_user(launcher: BwrapLauncher) -> None:
    """Where there is a user to change to."""
    if launcher.way is Way.NONE:
        pytest.skip("this process cannot change users")
    launches = [launcher.prepare(SandboxSpec(), lambda python: [python]) for _ in range(20)]
    for launch in launches:
        for fd in launch.pass_fds:
            os.close(fd)
        launch.release()

    assert len({_user(launch) for launch in launches}) == 20


def _user(launch: Launch) -> str:
    return next(word for word in launch.argv if word.startswith("--reuid="))


def _fake(folder: Path, script: Sequence[str]) -> str:
    program = folder / "bwrap"
    program.write_text("\n".join(["#!/bin/sh", *script]) + "\n")
    program.chmod(0o755)
    return str(program)


def test_an_old_bubblewrap_is_told_apart(tmp_path: Path) -> None:
    """It is never run without what limits it."""
    old = _fake(tmp_path, ["echo 'bubblewrap 0.4.1 --as-pid-1 --die-with-parent --seccomp'"])
    (probe,) = BwrapLauncher(old, Way.NONE).probes()

    assert not probe.ok
    assert probe.reason.endswith("lacks --size, --perms")
    assert "too old" in probe.fix


def test_a_program_that_cannot_be_run_is_no_surprise(tmp_path: Path) -> None:
    """Such as one for another machine."""
    broken = tmp_path / "bwrap"
    broken.write_bytes(b"\x7fELF" + bytes(60))
    broken.chmod(0o755)
    (probe,) = BwrapLauncher(str(broken), Way.NONE).probes()

    assert not probe.ok


def test_data_is_read_once_from_its_start() -> None:
    """As bubblewrap reads it: through a descriptor that it inherits."""
    fds = data_fds([b"one", b"", b"three" * 10_000])
    found = [os.read(fd, 100_000) for fd in fds]
    inherited = [os.get_inheritable(fd) for fd in fds]
    for fd in fds:
        os.close(fd)

    assert found == [b"one", b"", b"three" * 10_000]
    assert not any(inherited)  # by any other process that is started meanwhile


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_descriptors_that_run_out_leave_none_open() -> None:
    """A machine at its limit gets back what was taken."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    before = len(os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (before + 1, hard))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            data_fds([b"x"] * 200)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    assert len(os.listdir("/proc/self/fd")) == before
