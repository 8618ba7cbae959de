"""Leave a child that holds stdout and stderr open, so that whoever reads to the end waits."""

import os
import time

from prelude import report

if os.fork() == 0:
    time.sleep(12)
    os._exit(0)
report(succeeded=False)
os._exit(0)
