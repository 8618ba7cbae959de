"""Find what the host had open among the descriptors of this process."""

import os
import socket
import stat

from prelude import SECRET, done, refused, report

for fd in range(3, 256):
    try:
        status = os.fstat(fd)
    except OSError:
        continue
    kind = stat.S_IFMT(status.st_mode)
    try:
        target = os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        target = "?"
    try:
        data = os.pread(fd, 4096, 0) if stat.S_ISREG(status.st_mode) else b""
        if stat.S_ISSOCK(status.st_mode):
            data = socket.socket(fileno=os.dup(fd)).recv(4096, socket.MSG_DONTWAIT)
        if stat.S_ISDIR(status.st_mode):
            data = SECRET if os.listdir(fd) else b""
    except OSError as problem:
        data = str(problem).encode()
    here = done if SECRET in data or stat.S_ISDIR(status.st_mode) else refused
    here[f"fd {fd} {target}"] = f"{kind:o} {data[:60]!r}"
report()
