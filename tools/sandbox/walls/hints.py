"""What to do about the messages of launchers that did not get a sandbox up.

The messages are those of bubblewrap, setpriv and Python, as people report them.
"""

import re
from typing import NamedTuple

APPARMOR = (
    "this system's AppArmor restricts user namespaces: install the distribution's bubblewrap: its "
    "profile covers /usr/bin/bwrap, or `sysctl kernel.apparmor_restrict_unprivileged_userns=0`"
)
NAMESPACES = (
    "the kernel or the container refuses namespaces: `sysctl kernel.unprivileged_userns_clone=1` "
    "and `sysctl user.max_user_namespaces=15000` on the machine; Docker: `--security-opt "
    "seccomp=unconfined --security-opt apparmor=unconfined --security-opt systempaths=unconfined`"
)
PROC = (
    "the container masks /proc, so no new one can be mounted: Docker: `--security-opt "
    "systempaths=unconfined`; Kubernetes: `procMount: Unmasked`"
)
UNREADABLE = (
    "other users may not read this Python: `chmod -R o+rX` its folder, or install it outside a "
    "private home"
)
INSTALL = (
    "install bubblewrap: `apt install bubblewrap`, `dnf install bubblewrap`, or `pip install "
    "'agentgym-rl[sandbox]'`"
)
OLD = f"this bubblewrap is too old (0.8 is enough); {INSTALL}"


class _Sign(NamedTuple):
    pattern: str
    hint: str


_SIGNS = (
    _Sign(r"Can't mount proc", PROC),
    _Sign(r"loopback: Failed RTM_NEWADDR|setting up uid map: Permission denied", APPARMOR),
    _Sign(r"setting up [ug]id map", NAMESPACES),
    _Sign(r"No permissions to creat\w* new namespace|Creating new namespace failed", NAMESPACES),
    _Sign(r"unshare|clone|namespace|Failed to make / slave|pivot_root", NAMESPACES),
    _Sign(r"Can't find source path .*Permission denied", UNREADABLE),
    _Sign(r"failed to execute .*Permission denied|execvp .*Permission denied", UNREADABLE),
    _Sign(r"Unknown option|unrecognized option", OLD),
    _Sign(r"No space left on device", "free some of /tmp and /dev/shm"),
    _Sign(r"Too many open files", "raise the limit of open files: `ulimit -n 65536`"),
    _Sign(
        r"Cannot allocate memory|Resource temporarily unavailable",
        "free memory, or raise the limit of processes: `ulimit -u`",
    ),
)


def hint(message: str) -> str:
    """What would help against a launcher's message; empty if it is none that is known."""
    for sign in _SIGNS:
        if re.search(sign.pattern, message):
            return sign.hint
    return ""
