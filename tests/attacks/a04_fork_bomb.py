"""Have far more processes than allowed at once."""

import os
import time

from prelude import report

WANTED = 300

pids = []
problem = ""
for _ in range(WANTED):
    try:
        pid = os.fork()
    except OSError as error:
        problem = str(error)
        break
    if pid == 0:
        time.sleep(4)
        os._exit(0)
    pids.append(pid)
time.sleep(0.2)
report(succeeded=len(pids) >= 100, forks=len(pids), problem=problem)
for pid in pids:
    os.kill(pid, 9)
    os.waitpid(pid, 0)
