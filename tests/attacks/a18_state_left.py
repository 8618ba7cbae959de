"""Leave something for the next trajectory, or find what the last one left: files, shared memory."""

import os
from pathlib import Path

from prelude import D, done, leak, report

PLACES = (os.getcwd(), os.path.expanduser("~"), "/tmp", "/var/tmp", "/dev/shm", "/run", "/dev")
found = []
for place in PLACES:
    path = Path(place) / D["rendezvous"]
    try:
        found.append(f"{path}: {path.read_text()}")
    except OSError:
        pass
    try:
        path.write_text("left here")
    except OSError:
        pass
leak("module state", lambda: repr(getattr(os, "left_by_an_attack", "")))
os.left_by_an_attack = "DEC" + "OY-state"
report(succeeded=bool(found) or bool(done), found=found)
