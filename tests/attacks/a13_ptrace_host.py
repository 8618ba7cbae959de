"""Read and write the memory of a process of the host."""

import ctypes
import os

from prelude import D, attempt, leak, report, syscall

PTRACE_DETACH, PTRACE_SEIZE = 17, 0x4206
pid, address = D["pid"], D["address"]
size = 64


class Vec(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


buffer = ctypes.create_string_buffer(size)
local = Vec(ctypes.addressof(buffer), size)
remote = Vec(address, size)


def read_mem():
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as mem:
        mem.seek(address)
        return mem.read(size)


def write_mem():
    with open(f"/proc/{pid}/mem", "r+b", buffering=0) as mem:
        mem.seek(D["scribble"])
        return mem.write(b"written by the attack")


def vm_read():
    syscall("process_vm_readv", pid, ctypes.byref(local), 1, ctypes.byref(remote), 1, 0)
    return buffer.raw


def vm_write():
    there = Vec(D["scribble"], size)
    return syscall("process_vm_writev", pid, ctypes.byref(local), 1, ctypes.byref(there), 1, 0)


def seize():
    syscall("ptrace", PTRACE_SEIZE, pid, 0, 0)
    return "seized"


def stolen_descriptor():
    fd = syscall("pidfd_open", pid, 0)
    stolen = syscall("pidfd_getfd", fd, D["secret_fd"], 0)
    return os.pread(stolen, 100, 0)


leak("/proc/PID/mem", read_mem)
leak("process_vm_readv", vm_read)
leak("pidfd_getfd", stolen_descriptor)
leak("/proc/PID/fd", lambda: open(f"/proc/{pid}/fd/{D['secret_fd']}", "rb").read(100))
attempt("write /proc/PID/mem", write_mem)
attempt("process_vm_writev", vm_write)
attempt("ptrace seize", seize)
attempt("kcmp", syscall, "kcmp", pid, pid, 0, 1, 1)
report()
