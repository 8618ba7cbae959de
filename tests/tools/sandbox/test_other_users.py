"""The same tests as other users and with another Python: what a machine is like is not chosen.

Here Python may lie in a private home, so that only one way of changing users is open. With the
system's Python, and as an ordinary user, the others are.
"""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from agentgym.tools.sandbox.uids import closed_to_others

PROJECT = Path(__file__).parents[3]
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


@pytest.mark.slow
@pytest.mark.parametrize("uid", [0, STRANGER])
def test_the_launcher_and_the_choice_hold(uid: int, tmp_path: Path) -> None:
    """As root with a Python that everyone may read, and as an ordinary user."""
    if reason := _why_not():
        pytest.skip(reason)
    files = [f"tests/tools/sandbox/test_{name}.py" for name in ("bwrap", "choose")]
    change = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]
    paths = [str(PROJECT), sysconfig.get_path("purelib")]
    environment = {
        "PATH": "/usr/bin:/bin",
        "PYTHONPATH": ":".join(paths),
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
        "HOME": "/nonexistent",
    }
    command = [*change, SYSTEM, "-m", "pytest", "-q", "-p", "no:cacheprovider", *files]
    run = subprocess.run(
        command, env=environment, cwd=PROJECT, capture_output=True, text=True, check=False
    )

    assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-1000:]
    assert " passed" in run.stdout.splitlines()[-1]
