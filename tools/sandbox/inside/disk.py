"""What code has written to a disk that it shares with the host.

A file needs no name to take up space: those that are open or mapped after they were deleted count
too. What cannot be measured, such as a folder that does not let itself be listed, is too much.
"""

import os
import stat
import time
from collections.abc import Iterable

from agentgym.tools.sandbox.inside.processes import tasks

MAX_INODES = 20_000
_GONE = (FileNotFoundError, NotADirectoryError, ProcessLookupError)
_BLOCK = 512
_FLAGS, _PF_EXITING = 6, 4
_OUT_OF_SIGHT_S = 0.5
"""A process that begins or ends cannot be seen; on a busy machine that takes more than one look."""
_SHARED_MEMORY = b"/dev/zero (deleted)"
"""Has no file, and counts as memory."""


class Disk:
    """Some folders, and the processes that write in them."""

    def __init__(self, folders: "Iterable[str]") -> None:
        self._folders = list(folders)
        self._unseen: dict[int, float] = {}
        """By process, since when."""

    def is_full(self, pids: "Iterable[int]", max_bytes: int) -> bool:
        """Whether there is more than that, or what cannot be measured.

        Args:
            pids: of the living processes that could write.
            max_bytes: of all files together.
        """
        count = _Count(max_bytes)
        try:
            for folder in self._folders:
                _add_folder(folder, count)
            unseen = {pid for pid in pids if not _add_process(pid, count)}
        except _FullError:
            return True
        now = time.monotonic()
        self._unseen = {pid: self._unseen.get(pid, now) for pid in unseen}
        return any(now - since > _OUT_OF_SIGHT_S for since in self._unseen.values())


class _FullError(Exception):
    pass


class _Count:
    """Each file once, by its largest size seen."""

    def __init__(self, max_bytes: int) -> None:
        self._left = max_bytes
        self._sizes: dict[tuple[int, int], int] = {}

    def expect(self, inodes: int) -> None:
        """Before so many are looked at, which takes a while."""
        if inodes > MAX_INODES:
            raise _FullError

    def add(self, device: int, inode: int, size: int) -> None:
        known = self._sizes.get((device, inode), 0)
        self._sizes[device, inode] = max(size, known)
        self._left -= max(0, size - known)
        if self._left < 0 or len(self._sizes) > MAX_INODES:
            raise _FullError


def _add_folder(folder: str, count: _Count) -> None:
    pending = [folder]
    while pending:
        path = pending.pop()
        try:
            names = os.listdir(path)
            count.expect(len(names))
            for name in names:
                child = os.path.join(path, name)
                status = os.lstat(child)
                count.add(status.st_dev, status.st_ino, status.st_blocks * _BLOCK)
                if stat.S_ISDIR(status.st_mode):
                    pending.append(child)
        except _GONE:
            continue
        except OSError:
            raise _FullError from None


def _add_process(pid: int, count: _Count) -> bool:
    """Its files without a name; whether they could be seen. Threads can have files of their own."""
    return all(_add_task(task, count) for task in tasks(pid))


def _add_task(task: str, count: _Count) -> bool:
    try:
        for fd in os.listdir(f"{task}/fd"):
            _add_open(f"{task}/fd/{fd}", count)
        _add_mappings(f"{task}/maps", count)
    except _GONE:
        return True
    except PermissionError:
        return _is_ending(task)
    return True


def _add_mappings(path: str, count: _Count) -> None:
    with open(path, "rb") as file:
        for line in file:
            if line.endswith(b" (deleted)\n"):
                _add_mapped(line, count)


def _is_ending(task: str) -> bool:
    """Its files cannot be seen any more, and are about to go."""
    try:
        with open(f"{task}/stat", "rb") as file:
            text = file.read()
    except _GONE:
        return True
    return bool(int(text[text.rindex(b")") + 2 :].split()[_FLAGS]) & _PF_EXITING)


def _add_open(path: str, count: _Count) -> None:
    try:
        status = os.stat(path)
    except _GONE:
        return
    if status.st_nlink == 0 and stat.S_ISREG(status.st_mode):
        count.add(status.st_dev, status.st_ino, status.st_blocks * _BLOCK)


def _add_mapped(line: bytes, count: _Count) -> None:
    """From its start to the end of what is mapped."""
    addresses, _, offset, device, inode, path = line.split(maxsplit=5)
    if path.startswith(_SHARED_MEMORY):
        return
    first, last = (int(address, 16) for address in addresses.split(b"-"))
    major, minor = (int(part, 16) for part in device.split(b":"))
    count.add(os.makedev(major, minor), int(inode), int(offset, 16) + last - first)
