"""Use more memory than allowed under names that garble /proc/PID/stat."""

import os
import time

from prelude import MIB, rename, report

reader, writer = os.pipe()
pids = []
for number in range(10):
    pid = os.fork()
    if pid == 0:
        rename([") S 1 1 1", ") Z 0 0 0 0", "(((", "\n1 (a) S 0"][number % 4])
        try:
            blocks = []
            for _ in range(15):
                blocks.append(bytearray(b"x") * (5 * MIB))
                time.sleep(0.02)
            os.write(writer, b"y")
            time.sleep(3)
        finally:
            os._exit(0)
    pids.append(pid)
os.close(writer)
have = 0
while have < 9 and os.read(reader, 1):
    have += 1
report(succeeded=have >= 9, mb=75 * have)
for pid in pids:
    os.kill(pid, 9)
    os.waitpid(pid, 0)
