"""Wake, kill, trace or read the interpreter of the cells, which waits stopped between calls."""

import ctypes
import os
import signal

from prelude import D, done, refused, report, syscall

cells = D["cells"]
none = (ctypes.c_uint64 * 2)(0, 0)
for name, function in {
    "wake": lambda: os.kill(cells, signal.SIGCONT),
    "read": lambda: len(open(f"/proc/{cells}/environ", "rb").read()),
    "memory": lambda: open(f"/proc/{cells}/mem", "r+b").fileno(),
    "trace": lambda: syscall("ptrace", 0x4206, cells, 0, 0),
    "limit": lambda: syscall("prlimit64", cells, 0, none, None),
    "kill": lambda: os.kill(cells, signal.SIGKILL),
}.items():
    try:
        done[name] = str(function())
    except OSError as problem:
        refused[name] = str(problem)
report(succeeded=False)
