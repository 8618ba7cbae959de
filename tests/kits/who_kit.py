"""As whom attacks are run: this user, an ordinary one, and either in something like a container."""

import os
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

PROJECT = Path(__file__).parents[2]
DOCKERLIKE = Path(__file__).with_name("dockerlike_kit.py")
_ORDINARY = 61_234 + 2 * int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
"""A uid that no distribution gives to anyone; another in each test process, for limits of a user
are shared by all that it runs."""


class Who(NamedTuple):
    """A user, and what it is locked into."""

    name: str
    uid: int | None = None
    """`None`: whoever runs the tests."""
    contained: bool = False

    def __str__(self) -> str:
        return self.name

    def command(self, words: Sequence[str]) -> list[str]:
        """Python runs these words as this user.

        Raises:
            LookupError: there is no Python that this user could run.
        """
        python = sys.executable if self.uid is None else _open_python()
        if not self.contained:
            return [python, *words]
        user = [] if self.uid is None else ["--uid", str(self.uid)]
        return [python, str(DOCKERLIKE), *user, "--", python, *words]

    def run(self, words: Sequence[str], *, timeout_s: float) -> "subprocess.CompletedProcess[str]":
        """Run a program of this project to its end.

        Raises:
            LookupError: as `command`.
        """
        uid = None if self.contained else self.uid
        return subprocess.run(
            self.command(words),
            env=self.environment(),
            user=uid,
            group=uid,
            extra_groups=None if uid is None else [],
            start_new_session=True,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            cwd="/",
            check=False,
        )

    def environment(self) -> dict[str, str]:
        if self.uid is None:
            return {**os.environ, "OMP_NUM_THREADS": "1"}
        return _environment()


HERE = Who("this user")
USER = Who("ordinary user", uid=_ORDINARY)
CONTAINED = Who("this user, contained", contained=True)
CONTAINED_USER = Who("ordinary user, contained", uid=_ORDINARY + 1, contained=True)


def everyone() -> tuple[Who, ...]:
    """Those that tests of this user can be."""
    is_root = os.geteuid() == 0
    return (HERE, USER, CONTAINED, CONTAINED_USER) if is_root else (HERE, CONTAINED)


def _environment() -> dict[str, str]:
    """For a Python of another place than this one: it finds the same packages."""
    paths = [str(PROJECT), *(path for path in sys.path if path.endswith("-packages"))]
    return {
        "PATH": "/usr/bin:/bin",
        "HOME": "/nonexistent",
        "LANG": "C.UTF-8",
        "OMP_NUM_THREADS": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": os.pathsep.join(paths),
    }


@cache
def _open_python() -> str:
    """A Python of this version that an ordinary user can run agentgym with."""
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    tried = dict.fromkeys([sys.executable, f"/usr/bin/{name}", f"/usr/local/bin/{name}"])
    problems = []
    for python in tried:
        try:
            run = subprocess.run(
                [python, "-c", "import agentgym.tools.sandbox.choosing.choose"],
                env=_environment(),
                user=_ORDINARY,
                group=_ORDINARY,
                extra_groups=[],
                capture_output=True,
                text=True,
                cwd="/",
                check=False,
            )
        except OSError as problem:
            problems.append(f"{python}: {problem}")
            continue
        if run.returncode == 0:
            return python
        problems.append(f"{python}: {run.stderr.strip().splitlines()[-1:]}")
    raise LookupError(f"no Python that uid {_ORDINARY} can run agentgym with: {problems}")
