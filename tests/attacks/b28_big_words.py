"""Choke whoever lists processes: huge arguments and environments, control characters in names."""

import os
import subprocess
import sys
import time

from prelude import D, rename, report

rename("\x1b[2J\n) 1 (\xff")
children = []
problem = ""
words = ["x" * 100_000] * 10
try:
    for _ in range(8):
        child = subprocess.Popen(
            [sys.executable, "-S", "-c", "import time; time.sleep(12)", D["mark"], *words],
            env={f"K{n}": "y" * 100_000 for n in range(5)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        children.append(child.pid)
except OSError as error:
    problem = str(error)
time.sleep(0.2)
report(succeeded=False, children=len(children), problem=problem)
os._exit(0)
