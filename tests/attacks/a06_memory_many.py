"""Use more memory than allowed, in ten processes each of which stays below the limit."""

import os
import time

from prelude import MIB, report

reader, writer = os.pipe()
pids = []
for _ in range(10):
    pid = os.fork()
    if pid == 0:
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
while os.read(reader, 1):
    have += 1
    if have >= 9:
        report(succeeded=True, mb=75 * have)
        break
else:
    report(succeeded=False, mb=75 * have)
for pid in pids:
    os.kill(pid, 9)
    os.waitpid(pid, 0)
