"""Poison what the next interpreter imports: standard library, caches, site-packages, start-up."""

import os
import sys
import sysconfig

from prelude import D, attempt, report

paths = {*sysconfig.get_paths().values(), sys.prefix, sys.base_prefix, os.path.dirname(os.__file__)}
paths |= {os.path.join(path, "__pycache__") for path in paths} | {"/usr/lib", "/etc", "/usr/bin"}


def left(path):
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    os.unlink(path)
    return "made, and removed"


for folder in sorted(paths):
    attempt(f"write in {folder}", left, os.path.join(folder, D["mark"] + ".pyc"))
attempt("open os.py", lambda: os.close(os.open(os.__file__, os.O_WRONLY)) or "opened")
attempt(
    "open python", lambda: os.close(os.open(os.path.realpath(sys.executable), os.O_RDWR)) or "ok"
)
report()
