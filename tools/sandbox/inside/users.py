"""A root process becomes another user, and keeps at most one capability."""

import ctypes
import os
import struct

from agentgym.tools.sandbox.inside import system

_PR_SET_KEEPCAPS, _PR_CAP_AMBIENT = 8, 47
_AMBIENT_RAISE = 2
_CAPSET_VERSION = 0x20080522
_libc = ctypes.CDLL(None, use_errno=True)


def become(uid: int, *, keep: "int | None") -> None:
    """Take on a uid and the gid of the same number, without further groups.

    Args:
        uid: the new user.
        keep: number of a capability that programs run by this process have too.

    Raises:
        OSError: this process may not.
    """
    system.prctl(_PR_SET_KEEPCAPS, int(keep is not None))
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    _set_capabilities(0 if keep is None else 1 << keep)
    if keep is not None:
        _check(_libc.prctl(_PR_CAP_AMBIENT, _AMBIENT_RAISE, keep, 0, 0), "PR_CAP_AMBIENT_RAISE")


def _set_capabilities(mask: int) -> None:
    low, high = mask & 0xFFFFFFFF, mask >> 32
    header = struct.pack("Ii", _CAPSET_VERSION, 0)
    _check(_libc.capset(header, struct.pack("6I", low, low, low, high, high, high)), "capset")


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
