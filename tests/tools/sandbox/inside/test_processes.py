"""Only what is the sandbox's own is ever stopped or killed."""

import os
import subprocess
import sys

import pytest

from agentgym.tools.sandbox.inside.processes import Family


@pytest.mark.parametrize("claim", ["owns_pids", "owns_uid"])
def test_a_runner_that_shares_its_processes_refuses_to_own_them(claim: str) -> None:
    """A launcher's mistake must not become a kill of everything this user runs."""
    claims = {"owns_pids": False, "owns_uid": False, claim: True}
    with pytest.raises(RuntimeError, match="shares"):
        Family(**claims)


def test_descendants_are_the_runners_own() -> None:
    """And nobody else's."""
    children = [
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) for _ in range(2)
    ]
    family = Family(owns_pids=False, owns_uid=False)
    try:
        members = {process.pid for process in family.members()}
        assert {child.pid for child in children} <= members
        assert os.getppid() not in members
        assert os.getpid() not in members
    finally:
        for child in children:
            child.kill()
            child.wait()
