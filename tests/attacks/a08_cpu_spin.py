"""Spin for ever, ignoring every signal that can be ignored."""

import signal
import time

from prelude import report

for number in range(1, 65):
    try:
        signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError):
        pass
end = time.monotonic() + 15
while time.monotonic() < end:
    pass
report(succeeded=True, spun="15 s")
