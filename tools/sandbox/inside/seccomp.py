"""Puts a system call filter, which the host has built, around this process and its children."""

import ctypes
import os

OWN_PID, RUNNER_PID, RUNNER_GROUP = 0xA6E0_0001, 0xA6E0_0002, 0xA6E0_0003
"""Stand in a filter for what only the process itself can know: its own id, that of the runner, and
the negative of the runner's process group."""

_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 22, 2
_INSTRUCTION = 8
_libc = ctypes.CDLL(None, use_errno=True)


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p)]


def with_ids(filter: bytes, ids: "dict[int, int]") -> bytes:
    """The filter with process ids in place of what stands for them."""
    code = bytearray(filter)
    for at in range(4, len(code), _INSTRUCTION):
        operand = int.from_bytes(code[at : at + 4], "little")
        if operand in ids:
            code[at : at + 4] = (ids[operand] & 0xFFFFFFFF).to_bytes(4, "little")
    return bytes(code)


def install(filter: bytes) -> None:
    """Filter the calls of this thread, for good; it must have given up gaining privileges.

    Raises:
        OSError: the kernel refused.
    """
    code = ctypes.create_string_buffer(filter, len(filter))
    program = _Program(len(filter) // _INSTRUCTION, ctypes.addressof(code))
    set_filter = (_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0)
    if _libc.prctl(*set_filter) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"seccomp filter: {os.strerror(number)}")
