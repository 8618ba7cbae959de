"""Calls that only an administrator may make, with arguments that change nothing."""

import ctypes
import os

from prelude import attempt, reach, report, syscall

name = os.uname().nodename.encode()
timex = ctypes.create_string_buffer(512)
adjtimex_modes = ctypes.c_uint.from_buffer(timex)


def tick():
    """The same length of a tick that the clock has already."""
    adjtimex_modes.value = 0
    syscall("adjtimex", timex)
    adjtimex_modes.value = 0x4000
    return syscall("adjtimex", timex)


def reaches_reboot():
    try:
        syscall("reboot", 0, 0, 0, None)
    except OSError as problem:
        if problem.errno == 22:
            return "the wrong number was all that was wrong"
        raise
    return None


attempt("sethostname", syscall, "sethostname", name, len(name))
attempt("set the clock", tick)
attempt("chroot", syscall, "chroot", b"/")
attempt("reboot", reaches_reboot)
attempt("kernel log", syscall, "syslog", 3, ctypes.create_string_buffer(64), 64)
attempt("set uid 0", os.setuid, 0)
attempt("set groups", os.setgroups, [0])
reach("swapoff", b"/nowhere")
reach("delete_module", b"nothing", 0)
reach("quotactl", -1, None, 0, None)
reach("umount2", b"/nowhere", 0)
reach("pivot_root", b"/nowhere", b"/nowhere")
report()
