"""Folders full of foreign files: emptied without following a link or descending by recursion."""

import os
import stat
from itertools import count


def empty(folder: str) -> None:
    """Delete everything in it, however deep: folders are lifted to the top before they go."""
    names = (f".lifted-{number}" for number in count())
    pending = [entry.path for entry in _entries(folder)]
    while pending:
        path = pending.pop()
        if not stat.S_ISDIR(os.lstat(path).st_mode):
            os.unlink(path)
            continue
        os.chmod(path, 0o700)
        for entry in _entries(path):
            lifted = os.path.join(folder, next(names))
            while os.path.lexists(lifted):
                lifted = os.path.join(folder, next(names))
            if entry.is_dir(follow_symlinks=False):
                os.chmod(entry.path, 0o700, follow_symlinks=True)
            os.rename(entry.path, lifted)
            pending.append(lifted)
        os.rmdir(path)


def remove(folder: str) -> None:
    """Delete it and everything in it; silent if it is gone."""
    if os.path.lexists(folder):
        empty(folder)
        os.rmdir(folder)


def _entries(folder: str) -> "list[os.DirEntry[str]]":
    with os.scandir(folder) as entries:
        return list(entries)
