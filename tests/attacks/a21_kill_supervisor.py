"""Kill, stop or wind up whoever started this process; the host looks whether it still works."""

import os
import signal

from prelude import D, done, refused, report, syscall

parent = os.getppid()
for name, function in {
    "tgkill": lambda: syscall("tgkill", parent, parent, signal.SIGKILL),
    "stop": lambda: os.kill(parent, signal.SIGSTOP),
    "SIGINT": lambda: os.kill(parent, signal.SIGINT),
    "SIGTERM": lambda: os.kill(parent, signal.SIGTERM),
    "SIGSEGV": lambda: os.kill(parent, signal.SIGSEGV),
    "kill": lambda: os.kill(parent, signal.SIGKILL),
}.items():
    try:
        function()
        done[name] = "sent"
    except OSError as problem:
        refused[name] = str(problem)[:80]
report(succeeded=False)
if os.getsid(0) != D["session"]:
    os.kill(0, signal.SIGKILL)
