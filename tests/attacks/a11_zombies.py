"""Leave processes that nobody waits for."""

import os
import time

from prelude import report

if os.fork() == 0:
    os.setsid()
    for _ in range(20):
        if os.fork() == 0:
            os._exit(0)
    os.close(1)
    os.close(2)
    time.sleep(12)
    os._exit(0)
for _ in range(10):
    if os.fork() == 0:
        os._exit(0)
time.sleep(0.1)
report(succeeded=False)
os._exit(0)
