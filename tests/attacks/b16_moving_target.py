"""Outlive the call as a chain of processes each of which forks the next and ends."""

import os
import time

from prelude import LIBC, report, until

if os.fork() == 0:
    os.setsid()
    null = os.open("/dev/null", os.O_RDWR)
    for fd in range(3):
        os.dup2(null, fd)
    LIBC.prctl(1, 0, 0, 0, 0)
    going = until(6)
    while going():
        try:
            if os.fork():
                os._exit(0)
        except OSError:
            time.sleep(0.001)
    os._exit(0)
time.sleep(0.05)
report(succeeded=False)
os._exit(0)
