"""Gain what a setuid program has: exec is not told to refuse it, or one of them runs as root."""

import ctypes
import os
import struct
import subprocess

from prelude import LIBC, D, attempt, done, refused, report

READS_ALL = (1 << 2 | 1 << 1) if D["level"] == 2 else 0
"""Kept where the sandbox's user could not read Python; Landlock says what it is good for."""


def capabilities(kind):
    data = ctypes.create_string_buffer(24)
    if LIBC.capget(struct.pack("Ii", 0x20080522, 0), data):
        raise OSError(ctypes.get_errno(), "capget")
    words = struct.unpack("6I", data.raw)
    at = ("effective", "permitted", "inheritable").index(kind)
    return words[at] | words[at + 3] << 32


(refused if LIBC.prctl(39, 0, 0, 0, 0) == 1 else done)["no_new_privs"] = "off"
for path in D["suid"]:
    attempt(f"run {path}", subprocess.check_output, [path, "-u"])
for kind in ("permitted", "inheritable", "effective"):
    mask = capabilities(kind)
    if mask & ~READS_ALL:
        done[f"{kind} capabilities"] = hex(mask)
extra = [group for group in os.getgroups() if group not in (os.getgid(), 65534)]
if extra:
    done["groups"] = str(extra)
report()
