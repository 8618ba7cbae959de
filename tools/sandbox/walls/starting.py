"""Parts of starting a process that launchers share."""

import os
import subprocess
from collections.abc import Sequence
from typing import Any

from agentgym.errors import SandboxError, UsageError
from agentgym.tools.sandbox.base import Probe, SandboxSpec
from agentgym.tools.sandbox.walls import uids
from agentgym.tools.sandbox.walls.hints import hint
from agentgym.tools.sandbox.walls.launch import Launch, Launcher

_PATIENCE_S = 20.0
_UP = "up"


def data_fds(contents: Sequence[bytes]) -> list[int]:
    """Descriptors from which each content can be read once, from its start.

    Raises:
        OSError: there are no more; none is left open.
    """
    fds: list[int] = []
    try:
        for content in contents:
            fds.append(os.memfd_create("sandbox", os.MFD_CLOEXEC))
            os.write(fds[-1], content)
            os.lseek(fds[-1], 0, os.SEEK_SET)
    except OSError:
        for fd in fds:
            os.close(fd)
        raise
    return fds


def try_start(launcher: Launcher) -> Probe:
    """Whether Python gets up behind a wall at all, and if not, what the launcher said."""
    try:
        launch = launcher.prepare(SandboxSpec(), _greeting)
    except (SandboxError, UsageError) as error:
        return Probe("start", False, str(error))
    try:
        run = run_launch(launch)
    except (OSError, subprocess.SubprocessError) as error:
        return Probe("start", False, f"{launch.argv[0]}: {error}", hint(str(error)))
    finally:
        launch.release()
    said = run.stderr.decode(errors="replace").strip()
    if run.returncode == 0 and run.stdout.decode().strip() == _UP:
        return Probe("start", True, "Python runs in it")
    last = said.splitlines()[-1].rstrip(".") if said else f"ended with {run.returncode} and no word"
    return Probe("start", False, last, hint(said))


def popen_arguments(launch: Launch) -> dict[str, Any]:
    """What starts a launch as its user, without copying this process if that can be helped."""
    argv, user = list(launch.argv), launch.user
    if user is None:
        return {"args": argv}
    if os.access(uids.CHANGES_USER, os.X_OK):
        return {"args": [*uids.change_to(user), *argv]}
    return {"args": argv, "user": user, "group": user, "extra_groups": []}


def run_launch(launch: Launch) -> subprocess.CompletedProcess[bytes]:
    """Run what was prepared to its end; its descriptors are closed here."""
    try:
        return subprocess.run(
            **popen_arguments(launch),
            env=dict(launch.env),
            pass_fds=launch.pass_fds,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            cwd="/",
            timeout=_PATIENCE_S,
            check=False,
        )
    finally:
        for fd in launch.pass_fds:
            os.close(fd)


def _greeting(python: str) -> list[str]:
    return [python, "-P", "-s", "-S", "-c", f"print({_UP!r})"]
