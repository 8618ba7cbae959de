"""See which processes the host runs, and what it runs on."""

import os

from prelude import D, attempt, read, report

mine = {str(os.getpid()), str(os.getppid()), "1"}
pid = D["pid"]
attempt("decoy in /proc", lambda: read(f"/proc/{pid}/comm"))
attempt("decoy's status", lambda: read(f"/proc/{pid}/status")[:60])
attempt("decoy's maps", lambda: read(f"/proc/{pid}/maps")[:60])
attempt("decoy's threads", lambda: os.listdir(f"/proc/{pid}/task"))
attempt("decoy's program", lambda: os.readlink(f"/proc/{pid}/exe"))


def listing():
    others = [p for p in os.listdir("/proc") if p.isdigit() and p not in mine]
    marks = [p for p in others if D["decoy_name"].encode() in read(f"/proc/{p}/comm")]
    return marks or 1 / 0


attempt("decoy found by its name", listing)
report()
