"""Change pages that are mapped read-only from files of the system, through /proc/self/mem."""

import mmap
import os
import sys

from prelude import done, read, refused, report

path = os.path.realpath(sys.executable)
before = read(path, 4096)
try:
    with open(path, "rb") as file:
        view = mmap.mmap(file.fileno(), 4096, prot=mmap.PROT_READ, flags=mmap.MAP_SHARED)
    with open("/proc/self/maps") as maps:
        start = next(int(x.split("-")[0], 16) for x in maps if path in x and "r--s" in x)
    with open("/proc/self/mem", "r+b", buffering=0) as mem:
        mem.seek(start)
        mem.write(b"\x7fELF")
    refused["write"] = "went to a copy"
except (OSError, StopIteration, ValueError) as problem:
    refused["write"] = repr(problem)
if read(path, 4096) != before:
    done["changed"] = path
report()
