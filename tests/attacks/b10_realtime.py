"""Take the cores and the memory from everyone else: real-time, nice, locked pages, limits."""

import ctypes
import os
import resource

from prelude import LIBC, MIB, attempt, report, syscall

for name, policy in {"FIFO": 1, "RR": 2}.items():
    attempt(name, os.sched_setscheduler, 0, policy, os.sched_param(1))
attempt("nice -5", os.setpriority, 0, 0, -5)
attempt("real-time input and output", syscall, "ioprio_set", 1, 0, 1 << 13)


def locked():
    block = ctypes.create_string_buffer(32 * MIB)
    if LIBC.mlock(block, 32 * MIB):
        raise OSError(ctypes.get_errno(), "mlock")
    return "32 MB"


attempt("locked pages", locked)


def raised(limit):
    soft, hard = resource.getrlimit(limit)
    if hard == resource.RLIM_INFINITY:
        return "unlimited"
    resource.setrlimit(limit, (hard + 1, hard + 1))
    return f"{hard} -> {hard + 1}"


for name in ("AS", "NPROC", "FSIZE", "NOFILE", "CPU", "CORE"):
    attempt(f"limit {name}", raised, resource.__dict__["RLIMIT_" + name])
report()
