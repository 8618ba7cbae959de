"""Read or change the runner's memory, steal its descriptors, trace it."""

import ctypes
import os

from prelude import D, attempt, report, syscall

PTRACE_ATTACH, PTRACE_SEIZE = 16, 0x4206
parent = os.getppid()
marker = ctypes.create_string_buffer(b"here before the fork")


class Vec(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


def mapped():
    with open(f"/proc/{parent}/maps") as maps:
        return maps.readline()


def read_memory():
    start = int(mapped().split("-")[0], 16)
    with open(f"/proc/{parent}/mem", "rb", buffering=0) as mem:
        mem.seek(start)
        return mem.read(16)


def write_memory():
    os.close(os.open(f"/proc/{parent}/mem", os.O_RDWR))
    return "opened to write"


def vm_read():
    local = Vec(ctypes.addressof(marker), 8)
    remote = Vec(id(D), 8)  # a fork has its parent's addresses
    return syscall("process_vm_readv", parent, ctypes.byref(local), 1, ctypes.byref(remote), 1, 0)


def vm_write():
    local = Vec(ctypes.addressof(marker), 0)
    return syscall("process_vm_writev", parent, ctypes.byref(local), 1, ctypes.byref(local), 1, 0)


def steal(fd):
    return os.fstat(syscall("pidfd_getfd", syscall("pidfd_open", parent, 0), fd, 0)).st_mode


attempt("maps", mapped)
attempt("read memory", read_memory)
attempt("write memory", write_memory)
attempt("environment", lambda: len(open(f"/proc/{parent}/environ", "rb").read()))
attempt("process_vm_readv", vm_read)
attempt("ptrace seize", syscall, "ptrace", PTRACE_SEIZE, parent, 0, 0)
attempt("descriptors", lambda: os.listdir(f"/proc/{parent}/fd"))
attempt("kcmp", syscall, "kcmp", parent, os.getpid(), 1, 0, 0)
for fd in range(8):
    attempt(f"pidfd_getfd {fd}", steal, fd)
    attempt(f"open fd {fd}", os.open, f"/proc/{parent}/fd/{fd}", os.O_RDWR | os.O_NONBLOCK)
report()
