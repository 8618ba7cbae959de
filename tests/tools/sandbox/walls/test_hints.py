"""What launchers say when they fail is turned into what to do; the messages are real ones."""

import pytest

from agentgym.tools.sandbox.walls import hints

SAID = {
    "bwrap: loopback: Failed RTM_NEWADDR: Operation not permitted": "AppArmor",
    "bwrap: setting up uid map: Permission denied": "AppArmor",
    "bwrap: No permissions to create new namespace, likely because ...": "unprivileged_userns",
    "bwrap: No permissions to creating new namespace, likely because ...": "unprivileged_userns",
    "bwrap: Creating new namespace failed: Operation not permitted": "seccomp=unconfined",
    "bwrap: Can't mount proc on /newroot/proc: Operation not permitted": "systempaths=unconfined",
    "bwrap: Can't find source path /root/py: Permission denied": "chmod -R o+rX",
    "setpriv: failed to execute /root/py/bin/python3.11: Permission denied": "chmod -R o+rX",
    "bwrap: Unknown option --size": "too old",
    "OSError: [Errno 24] Too many open files": "ulimit -n",
}


@pytest.mark.parametrize(("message", "fix"), SAID.items())
def test_a_known_message_has_a_fix(message: str, fix: str) -> None:
    assert fix in hints.hint(message)


def test_an_unknown_message_has_none() -> None:
    """A guess would send people the wrong way."""
    assert hints.hint("Segmentation fault") == ""
