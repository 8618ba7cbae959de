"""Use memory that belongs to no process: pipes, socket buffers, descriptors in flight."""

import fcntl
import os
import socket
import time

from prelude import MIB, report

F_SETPIPE_SZ = 1031
block = b"x" * 65536
reader, writer = os.pipe()


def pipes():
    total = 0
    keep = []
    for number in range(110):
        try:
            if number % 2:
                pair = os.pipe()
                try:
                    fcntl.fcntl(pair[1], F_SETPIPE_SZ, MIB)
                except OSError:
                    pass
                end = pair[1]
            else:
                pair = socket.socketpair()
                pair[0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8 * MIB)
                end = pair[0].fileno()
        except OSError:
            break
        keep.append(pair)
        os.set_blocking(end, False)
        try:
            while total < 32 * MIB:
                total += os.write(end, block)
        except OSError:
            pass
    return keep, total


pids = []
for _ in range(40):
    try:
        pid = os.fork()
    except OSError:
        break
    if pid == 0:
        keep, total = pipes()
        os.write(writer, b"%10d" % total)
        time.sleep(4)
        os._exit(0)
    pids.append(pid)
os.close(writer)
total = 0
for _ in pids:
    total += int(os.read(reader, 10) or 0)
report(succeeded=total > 1100 * MIB, mb=total // MIB, processes=len(pids))
for pid in pids:
    os.kill(pid, 9)
    os.waitpid(pid, 0)
