"""Change modes, owners, times and attributes of files of the host."""

import os

from prelude import D, done, refused, report, syscall


def changed(path):
    status = os.stat(path)
    return (status.st_mode, status.st_mtime_ns, status.st_uid, status.st_nlink)


for path in [*D["writable"], *D["files"], *D["folders"]]:
    try:
        before = changed(path)
    except OSError as problem:
        refused[path] = str(problem)[:60]
        before = None
    for function in (
        lambda path=path: os.chmod(path, 0o640 if os.path.isfile(path) else 0o711),
        lambda path=path: syscall("fchmodat2", -100, path.encode(), 0o604, 0),
        lambda path=path: os.utime(path, (1, 1)),
        lambda path=path: os.setxattr(path, "user.attack", b"x"),
        lambda path=path: os.chown(path, os.getuid(), os.getgid()),
        lambda path=path: os.chmod(os.open(path, os.O_PATH), 0o600),
        lambda path=path: os.link(path, f"{path}-linked"),
    ):
        try:
            function()
        except (OSError, TypeError):
            continue
    if before is not None and changed(path) != before:
        done[path] = f"{before} -> {changed(path)}"
report()
