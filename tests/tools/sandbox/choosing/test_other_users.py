"""The same tests as other users and with another Python: what a machine is like is not chosen.

Here Python may lie in a private home, so that only one way of changing users is open. With the
system's Python, and as an ordinary user, the others are.
"""

import os
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

import pytest

from agentgym.tools.sandbox.walls.uids import closed_to_others

PROJECT = Path(__file__).parents[4]
SYSTEM = "/usr/bin/python3"
STRANGER = 65_533


def _why_not() -> str:
    if os.geteuid() != 0:
        return "only root can take on another user"
    minor = subprocess.run([SYSTEM, "-V"], capture_output=True, text=True, check=False).stdout
    if not minor.startswith(f"Python {sys.version_info.major}.{sys.version_info.minor}."):
        return f"{SYSTEM} is {minor.strip() or 'not there'}, with which our packages cannot be used"
    closed = closed_to_others([str(PROJECT), sysconfig.get_path("purelib")])
    return f"other users may not enter {closed}" if closed else ""


def _system_python(command: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    """Run the system's Python on our code, with nothing of this process's environment."""
    environment = {
        "PATH": "/usr/bin:/bin:/usr/sbin:/sbin",
        "PYTHONPATH": f"{PROJECT}:{sysconfig.get_path('purelib')}",
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
        "HOME": "/nonexistent",
    }
    return subprocess.run(
        command, env=environment, cwd=PROJECT, capture_output=True, text=True, check=False
    )


@pytest.mark.slow
@pytest.mark.parametrize("uid", [0, STRANGER])
def test_the_launcher_and_the_choice_hold(uid: int) -> None:
    """As root with a Python that everyone may read, and as an ordinary user."""
    if reason := _why_not():
        pytest.skip(reason)
    files = [
        f"tests/tools/sandbox/{name}.py" for name in ("walls/test_bwrap", "choosing/test_choose")
    ]
    run = _system_python(
        [*_as_user(uid), SYSTEM, "-m", "pytest", "-q", "-p", "no:cacheprovider", *files]
    )

    assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-1000:]
    assert " passed" in run.stdout.splitlines()[-1]


def _as_user(uid: int) -> list[str]:
    return ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]


DOCKER = [SYSTEM, str(PROJECT / "tests" / "kits" / "dockerlike_kit.py")]
MASKED = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs tmpfs /proc/acpi && exec "$@"', "sh"]
CHOOSE = """
from agentgym.tools.sandbox import shared
print(shared.choose_now().report.backend)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("surroundings", "backend", "says"),
    [
        pytest.param([*DOCKER, "--"], "landlock", "seccomp=unconfined", id="docker, root"),
        pytest.param(
            [*DOCKER, "--uid", str(STRANGER), "--"], "landlock", "seccomp=unconfined", id="docker"
        ),
        pytest.param(MASKED, "bwrap", "level 3/4", id="masked proc, root"),
        pytest.param(
            [*MASKED, *_as_user(STRANGER)], "landlock", "systempaths=unconfined", id="masked proc"
        ),
        pytest.param(
            [*_as_user(STRANGER), "unshare", "-Ur"], "bwrap", "level 3/4", id="root of a user"
        ),
    ],
)
def test_what_a_machine_refuses_is_found_out(
    surroundings: list[str], backend: str, says: str
) -> None:
    """Each is refused by a real kernel; the line says what would help."""
    if reason := _why_not():
        pytest.skip(reason)
    run = _system_python([*surroundings, SYSTEM, "-c", CHOOSE])

    assert run.stdout.strip() == backend, run.stderr
    assert says in run.stderr
