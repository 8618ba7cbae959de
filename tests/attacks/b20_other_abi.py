"""Get past a filter of system calls with the numbers of another ABI: 32 bits, x32."""

import ctypes
import mmap
import os

from prelude import LIBC, X86, done, refused, report

SOCKET_32, UNSHARE_32 = 359, 310


def int80(number, one, two, three):
    """The result of a system call of i386."""
    code = (
        b"\x53\xb8" + number.to_bytes(4, "little") + b"\xbb" + one.to_bytes(4, "little")
        + b"\xb9" + two.to_bytes(4, "little") + b"\xba" + three.to_bytes(4, "little")
        + b"\xcd\x80\x5b\x48\x98\xc3"
    )  # fmt: skip
    page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(code)
    address = ctypes.addressof(ctypes.c_char.from_buffer(page))
    return ctypes.CFUNCTYPE(ctypes.c_long)(address)()


def in_child(name, function):
    """The call may be fatal, so a child makes it."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(writer, str(function()).encode())
        os._exit(0)
    os.close(writer)
    status = os.waitpid(pid, 0)[1]
    answer = os.read(reader, 100).decode() or f"status {status}"
    (done if answer.isdigit() else refused)[name] = answer


def x32(number, *args):
    return LIBC.syscall(ctypes.c_long(number | 0x40000000), *[ctypes.c_long(a) for a in args])


if X86:
    in_child("socket by int 0x80", lambda: int80(SOCKET_32, 2, 1, 0))
    in_child("socketpair by int 0x80", lambda: int80(20, 0, 0, 0))
    in_child("unshare by int 0x80", lambda: int80(UNSHARE_32, 0x10000000, 0, 0))
    in_child("socket by x32", lambda: x32(41, 2, 1, 0))
    in_child("getpid by x32", lambda: x32(39))
report()
