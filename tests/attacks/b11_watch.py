"""Watch what happens to files of the host, the names in folders that cannot be listed included."""

import ctypes
import fcntl
import os

from prelude import LIBC, D, attempt, report, syscall

IN_NONBLOCK, EVENTS = 0o4000, 0x3FF


def inotify(path):
    fd = LIBC.inotify_init1(IN_NONBLOCK)
    if LIBC.inotify_add_watch(fd, path.encode(), EVENTS) < 0:
        raise OSError(ctypes.get_errno(), "inotify_add_watch")
    return "watching"


def dnotify(path):
    fd = os.open(path, os.O_RDONLY)
    fcntl.fcntl(fd, fcntl.F_NOTIFY, fcntl.DN_CREATE)
    return "watching"


def lease(path):
    fd = os.open(path, os.O_RDONLY)
    fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    return "held"


for path in [*D["files"][:2], *D["folders"], D["project"]]:
    attempt(f"inotify {path}", inotify, path)
for path in D["folders"]:
    attempt(f"dnotify {path}", dnotify, path)
for path in [*D["files"], *D["writable"]]:
    attempt(f"lease {path}", lease, path)
    attempt(f"lock {path}", lambda path=path: fcntl.flock(open(path), fcntl.LOCK_EX))
attempt("fanotify", syscall, "fanotify_init", 0x200, 0)
report()
