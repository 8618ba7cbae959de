"""Have far more threads than allowed at once."""

import threading
import time

from prelude import report

threads = []
problem = ""
threading.stack_size(65536)
try:
    for _ in range(400):
        thread = threading.Thread(target=time.sleep, args=[3], daemon=True)
        thread.start()
        threads.append(thread)
except RuntimeError as error:
    problem = str(error)
report(succeeded=len(threads) >= 100, threads=len(threads), problem=problem)
