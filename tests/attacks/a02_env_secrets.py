"""Find secrets in environments: its own, the launcher's, every process's; in command lines."""

import os

from prelude import D, leak, processes, read, report

leak("os.environ", lambda: repr(dict(os.environ)))
for pid in ["self", "thread-self", "1", *processes(), D["pid"]]:
    leak(f"environment of {pid}", read, f"/proc/{pid}/environ")
    leak(f"command line of {pid}", read, f"/proc/{pid}/cmdline")
leak("environment of the parent", read, f"/proc/{os.getppid()}/environ")
report()
