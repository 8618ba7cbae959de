"""Outlive the call: double fork, new session, no pipes held, signals ignored, other names."""

import os
import signal
import time

from prelude import LIBC, report


def daemon():
    os.setsid()
    if os.fork():
        os._exit(0)
    LIBC.prctl(1, 0, 0, 0, 0)  # PR_SET_PDEATHSIG
    LIBC.prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
    for number in (1, 2, 3, 13, 15, 18, 20):
        signal.signal(number, signal.SIG_IGN)
    null = os.open("/dev/null", os.O_RDWR)
    for fd in range(3):
        os.dup2(null, fd)
    os.closerange(3, 64)
    os.chdir("/")
    for _ in range(3):
        if os.fork():
            break
    time.sleep(12)
    os._exit(0)


for _ in range(3):
    if os.fork() == 0:
        daemon()
    os.wait()
report(succeeded=False)
os._exit(0)
