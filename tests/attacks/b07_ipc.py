"""Reach memory and queues that the host shares: System V, POSIX, /dev/shm."""

import ctypes
import os

from prelude import LIBC, D, attempt, leak, read, report, syscall

buffer = ctypes.create_string_buffer(8192)


def attached():
    LIBC.shmat.restype = ctypes.c_void_p
    ident = syscall("shmget", D["shm_key"], 0, 0)
    address = LIBC.shmat(ident, None, 0o10000)
    if address == ctypes.c_void_p(-1).value:
        raise OSError(ctypes.get_errno(), "shmat")
    return ctypes.string_at(address, 64)


def received():
    ident = syscall("msgget", D["msg_key"], 0)
    syscall("msgrcv", ident, buffer, 128, 0, 0o4000)
    return buffer.raw[8:136]


def queued():
    fd = syscall("mq_open", D["mq"].encode(), 0o4000, 0, None)  # O_RDONLY | O_NONBLOCK
    syscall("mq_timedreceive", fd, buffer, 8192, None, None)
    return buffer.raw[:100]


leak("System V memory", attached)
leak("System V queue", received)
leak("POSIX queue", queued)
leak("POSIX memory", read, "/dev/shm/" + D["shm_name"])


def made(get, remove, *args):
    """Made, and removed again."""
    ident = syscall(get, *args)
    syscall(remove, ident, 0, *([0] if remove == "semctl" else []), None)
    return "made"


def queue():
    name = D["mark"].encode()
    os.close(syscall("mq_open", name, 0o102, 0o600, None))
    return syscall("mq_unlink", name)


attempt("new System V memory", made, "shmget", "shmctl", 0, 4096, 0o1600)
attempt("new System V semaphores", made, "semget", "semctl", 0, 250, 0o1600)
attempt("new System V queue", made, "msgget", "msgctl", 0, 0o1600)
attempt("new POSIX queue", queue)
report()
