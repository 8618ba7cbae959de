"""Take the cores and the memory from everyone else: real-time, nice, locked pages, limits."""

import ctypes
import os
import resource

from prelude import LIBC, MIB, attempt, report, syscall


def scheduled(policy):
    os.sched_setscheduler(0, policy, os.sched_param(1))
    return os.sched_getscheduler(0) == policy or 1 / 0


def preferred():
    os.setpriority(os.PRIO_PROCESS, 0, -5)
    return os.getpriority(os.PRIO_PROCESS, 0) == -5 or 1 / 0


def urgent():
    syscall("ioprio_set", 1, 0, 1 << 13)
    return syscall("ioprio_get", 1, 0) == 1 << 13 or 1 / 0


attempt("FIFO", scheduled, 1)
attempt("RR", scheduled, 2)
attempt("nice -5", preferred)
attempt("real-time input and output", urgent)


def locked():
    block = ctypes.create_string_buffer(32 * MIB)
    if LIBC.mlock(block, 32 * MIB):
        raise OSError(ctypes.get_errno(), "mlock")
    return "32 MB"


attempt("locked pages", locked)


def raised(limit):
    _, hard = resource.getrlimit(limit)
    if hard == resource.RLIM_INFINITY:
        return "unlimited"
    resource.setrlimit(limit, (hard + 1, hard + 1))
    return f"{hard} -> {hard + 1}"


for name in ("AS", "NPROC", "FSIZE", "NOFILE", "CPU", "CORE"):
    attempt(f"limit {name}", raised, resource.__dict__["RLIMIT_" + name])
report()
