"""Fill a disk: more than allowed, in every folder that can be written."""

import os
import tempfile

from prelude import MIB, report

CAP = 700
block = os.urandom(MIB)
total = 0
made = []
for folder in (os.getcwd(), "/tmp", "/var/tmp", "/dev/shm", "/dev", "/run", "/", "/dev/mqueue"):
    for _ in range(50):
        try:
            file = tempfile.TemporaryFile(dir=folder, buffering=0)
        except OSError:
            break
        made.append(file)
        before = total
        try:
            while total < CAP and total - before < 64:
                total += file.write(block) // MIB
        except OSError:
            pass
        if total == before or total >= CAP:
            break
report(succeeded=total > 400, mb=total)
