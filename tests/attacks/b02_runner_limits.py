"""Starve the runner and the host: their limits, priorities, cores, chance of being killed."""

import ctypes
import errno
import os

from prelude import D, attempt, done, report, syscall

RLIMIT_NOFILE, RLIMIT_CPU = 7, 0
PRIO_PROCESS, PRIO_USER = 0, 2
few = (ctypes.c_uint64 * 2)(3, 3)
one_core = (ctypes.c_ulong * 16)(1)
zero = ctypes.c_int(0)


def state(pid):
    """A call that succeeds without effect does not count."""
    return (
        os.getpriority(PRIO_PROCESS, pid),
        os.sched_getscheduler(pid),
        syscall("ioprio_get", 1, pid),
        sorted(os.sched_getaffinity(pid)),
        open(f"/proc/{pid}/oom_score_adj").read(),
        open(f"/proc/{pid}/limits").read(),
    )


def changed(pid, function, *args):
    try:
        before = state(pid)
    except OSError:
        before = None  # out of sight: whether it counts is for the host to say
    function(*args)
    if before is None or before == state(pid):
        raise ValueError("without effect")
    return "changed"


for name, pid in {"runner": os.getppid(), "host": D["pid"]}.items():
    for what, function, *args in (
        ("prlimit", syscall, "prlimit64", pid, RLIMIT_NOFILE, few, None),
        ("nice", os.setpriority, PRIO_PROCESS, pid, 19),
        ("idle", syscall, "sched_setscheduler", pid, 5, ctypes.byref(zero)),
        ("affinity", syscall, "sched_setaffinity", pid, 8, one_core),
        ("ioprio", syscall, "ioprio_set", 1, pid, 3 << 13),
        ("oom", lambda pid=pid: open(f"/proc/{pid}/oom_score_adj", "w").write("1000")),
    ):
        attempt(f"{name}: {what}", changed, pid, function, *args)


def everyone():
    """Refused for the decoy alone, whose nice value is higher: then all were in reach."""
    try:
        os.setpriority(PRIO_USER, os.getuid(), os.getpriority(PRIO_PROCESS, 0))
    except PermissionError as problem:
        if problem.errno == errno.EACCES:
            return "in reach"
    return None


if everyone():
    done["nice of all processes of the user"] = "in reach"
report()
