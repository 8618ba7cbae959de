"""Have the kernel send signals to a process of the host: owners of descriptors, timers, queues."""

import fcntl
import os
import signal
import socket

from prelude import D, attempt, report

F_SETSIG, O_ASYNC = 10, 0o20000


def asynchronous(pid):
    left, right = socket.socketpair()
    fcntl.fcntl(left, F_SETSIG, int(signal.SIGUSR1))
    fcntl.fcntl(left, fcntl.F_SETOWN, pid)
    fcntl.fcntl(left, fcntl.F_SETFL, O_ASYNC | os.O_NONBLOCK)
    right.send(b"x")


for name, pid in {"decoy": D["pid"], "group": -D["pgid"], "runner": os.getppid()}.items():
    attempt(f"sent towards {name}", asynchronous, pid)
report(succeeded=False)
