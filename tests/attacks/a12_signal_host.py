"""Send signals to processes of the host, in every way there is."""

import ctypes
import os
import signal

from prelude import D, attempt, report, syscall

pid, number = D["pid"], int(signal.SIGUSR1)
info = ctypes.create_string_buffer(128)
ctypes.memmove(info, (ctypes.c_int * 3)(number, 0, -1), 12)
attempt("kill", os.kill, pid, number)
attempt("kill with 0", os.kill, pid, 0)
attempt("killpg", os.killpg, D["pgid"], number)
attempt("tkill", syscall, "tkill", pid, number)
attempt("tgkill", syscall, "tgkill", pid, pid, number)
attempt("sigqueue", syscall, "rt_sigqueueinfo", pid, number, info)


def by_pidfd():
    fd = syscall("pidfd_open", pid, 0)
    return syscall("pidfd_send_signal", fd, number, None, 0)


attempt("pidfd", by_pidfd)
report()
