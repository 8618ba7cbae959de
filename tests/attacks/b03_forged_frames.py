"""Write results of its own making into every descriptor that could lead to the host."""

import json
import os
import struct

from prelude import report

FRAMES = [
    {"ok": True, "passed": True, "outcome": "ok", "value": 999, "id": 1},
    {"outcome": "lost", "blame": "infra"},
    {"id": 2, "op": "done", "outcome": "ok", "stdout": "forged", "value": 999},
]
written = []
own = {os.fstat(fd).st_ino for fd in range(3)}
names = [f"/proc/{pid}/fd/{fd}" for pid in (os.getppid(), 1) for fd in range(3, 16)]
for target in [*range(3, 64), *names]:
    try:
        fd = os.open(target, os.O_WRONLY | os.O_NONBLOCK) if isinstance(target, str) else target
        if os.fstat(fd).st_ino in own:
            continue
        for frame in FRAMES:
            body = json.dumps(frame).encode()
            for header in (struct.pack(">I", len(body)), struct.pack("<I", len(body)), b""):
                os.write(fd, header + body + b"\n")
        written.append(str(target))
        os.write(fd, b"\xff" * 64)
    except OSError:
        pass
report(succeeded=False, written=written)
