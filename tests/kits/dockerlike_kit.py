"""Runs a command under what Docker puts around a container by default, without Docker.

    python tests/kits/dockerlike_kit.py [--uid N] -- CMD...

Emulated: the capabilities that are left to root, and a filter that refuses namespaces, mounts and
what else Docker's default profile refuses to a process without further capabilities. Not emulated:
the image's file system, masked paths of /proc, cgroups.
"""

import argparse
import ctypes
import os
import struct
import sys
from collections.abc import Sequence
from errno import ENOSYS, EPERM

from agentgym.tools.sandbox.inside import seccomp, system, users
from agentgym.tools.sandbox.walls.bpf import ALLOW, Question, Rule, Span, program, refuse
from agentgym.tools.sandbox.walls.syscalls import machine, this_machine

KEPT = {
    "CAP_CHOWN": 0,
    "CAP_DAC_OVERRIDE": 1,
    "CAP_FOWNER": 3,
    "CAP_FSETID": 4,
    "CAP_KILL": 5,
    "CAP_SETGID": 6,
    "CAP_SETUID": 7,
    "CAP_SETPCAP": 8,
    "CAP_NET_BIND_SERVICE": 10,
    "CAP_NET_RAW": 13,
    "CAP_SYS_CHROOT": 18,
    "CAP_MKNOD": 27,
    "CAP_AUDIT_WRITE": 29,
    "CAP_SETFCAP": 31,
}
"""Root's capabilities in a container."""
_MASK = sum(1 << number for number in KEPT.values())
_MAX_CAPABILITIES = 64
_PR_CAPBSET_READ, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 23, 24, 38
_NEW_NAMESPACES = 0x7E020000

_REFUSED = (
    *("unshare", "setns", "mount", "umount2", "pivot_root", "fsopen", "fsconfig", "fsmount"),
    *("fspick", "move_mount", "open_tree", "mount_setattr", "bpf", "perf_event_open", "keyctl"),
    *("add_key", "request_key", "userfaultfd", "io_uring_setup", "io_uring_enter"),
    *("io_uring_register", "open_by_handle_at", "name_to_handle_at", "kcmp", "syslog", "acct"),
    *("swapon", "swapoff", "reboot", "kexec_load", "init_module", "finit_module"),
    *("delete_module", "settimeofday", "clock_settime", "sethostname", "setdomainname"),
    *("quotactl", "lookup_dcookie", "vhangup", "fanotify_init", "move_pages", "mbind"),
)


def enclose(uid: int | None) -> None:
    """Put it around this process, for good.

    Args:
        uid: the user it goes on as; `None` leaves it.

    Raises:
        OSError: the kernel refused.
    """
    is_root = os.geteuid() == 0
    if not is_root:
        system.prctl(_PR_SET_NO_NEW_PRIVS, 1)
    seccomp.install(_filter())
    if is_root:
        _drop_capabilities()
    if uid is not None:
        users.become(uid, keep=None)


def _filter() -> bytes:
    table = machine(this_machine())
    rules = {name: Rule(refuse(EPERM)) for name in _REFUSED}
    rules["clone3"] = Rule(refuse(ENOSYS))
    rules["clone"] = Rule(ALLOW, (Question(0, refuse(EPERM), mask=_NEW_NAMESPACES),))
    spans = [Span(0, Rule(ALLOW))]
    for number, rule in sorted((table.calls[name].number, rule) for name, rule in rules.items()):
        spans = [span for span in spans if span.first != number]
        spans += [Span(number, rule), Span(number + 1, Rule(ALLOW))]
    return program(table.audit_arch, spans, end=table.end)


def _drop_capabilities() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    for number in set(range(_MAX_CAPABILITIES)) - set(KEPT.values()):
        if libc.prctl(_PR_CAPBSET_READ, number, 0, 0, 0) == 1:
            system.prctl(_PR_CAPBSET_DROP, number)
    header = struct.pack("Ii", 0x20080522, 0)
    if libc.capset(header, struct.pack("6I", _MASK, _MASK, 0, 0, 0, 0)) != 0:
        raise OSError(ctypes.get_errno(), "capset")


def main(arguments: Sequence[str]) -> None:
    """Become the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--uid", type=int)
    parser.add_argument("command", nargs="+")
    options = parser.parse_args(arguments)
    enclose(options.uid)
    os.execvp(options.command[0], options.command)


if __name__ == "__main__":
    main(sys.argv[1:])
