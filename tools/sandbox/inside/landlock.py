"""Landlock: which files a process may open, and that it may reach no network and no other process.

Rules only ever allow, and hold for everything beneath a folder. They are made once; each child then
encloses itself with them.
"""

import ctypes
import fcntl
import os
import struct
from collections.abc import Iterable

_CREATE, _ADD, _RESTRICT = 444, 445, 446
_PROBE_VERSION, _PATH_BENEATH = 1, 1
_NO_LOG = 1
_OUT_OF_THE_WAY = 100

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1, 1 << 1, 1 << 2, 1 << 3
_MAKE_CHAR, _MAKE_SOCK, _MAKE_BLOCK = 1 << 6, 1 << 9, 1 << 11
TRUNCATE = 1 << 14
_OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | 1 << 15
_NUM_FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
_TCP = 0b11
_SCOPES = 0b11

HAS_TRUNCATE, _HAS_TCP, SCOPES_SIGNALS, _HAS_LOG = 3, 4, 6, 7
NEWEST = 7
"""Versions from which on Landlock covers what."""

READ = EXECUTE | READ_FILE | READ_DIR
LIST = READ_DIR
USE = READ_FILE | WRITE_FILE | TRUNCATE
WRITE = ((1 << 15) - 1) & ~(_MAKE_CHAR | _MAKE_BLOCK | _MAKE_SOCK)
"""Everything but devices and sockets."""

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


def version(limit: "int | None" = None) -> int:
    """Landlock's version here; 0 where there is none.

    Args:
        limit: act as an older kernel, which has no more than this version.
    """
    found: int = _libc.syscall(_long(_CREATE), None, _long(0), _long(_PROBE_VERSION))
    return max(0, min(found, NEWEST, NEWEST if limit is None else limit))


class Ruleset:
    """Rights by path; a right that no rule gives is refused. `fd` holds them.

    Raises:
        OSError: the kernel has no Landlock.
    """

    def __init__(self, abi: int) -> None:
        self._abi = abi
        self._rights = (1 << _NUM_FILE_RIGHTS[min(abi, 5)]) - 1 if abi else 0
        words = [self._rights]
        words += [_TCP] if abi >= _HAS_TCP else []
        words += [_SCOPES] if abi >= SCOPES_SIGNALS else []
        attributes = struct.pack(f"{len(words)}Q", *words)
        fd = _call(_CREATE, attributes, len(attributes), 0)
        self.fd = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _OUT_OF_THE_WAY)
        os.close(fd)

    def allow(self, paths: "Iterable[str]", rights: int) -> None:
        """Give rights to files, and to folders with all beneath; what is not there is left out."""
        for path in paths:
            try:
                fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
            except (FileNotFoundError, PermissionError):
                continue
            is_folder = os.path.isdir(path)
            mask = self._rights if is_folder else self._rights & _OF_FILES
            rule = struct.pack("=Qi", rights & mask, fd)
            try:
                _call(_ADD, self.fd, _PATH_BENEATH, rule, 0)
            finally:
                os.close(fd)

    def enclose(self) -> None:
        """Hold this thread and its children to the rules, for good."""
        _call(_RESTRICT, self.fd, _NO_LOG if self._abi >= _HAS_LOG else 0)


def _call(number: int, *arguments: "int | bytes") -> int:
    words = [a if isinstance(a, bytes) else _long(a) for a in arguments]
    result: int = _libc.syscall(_long(number), *words)
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"Landlock: {os.strerror(error)}")
    return result


_long = ctypes.c_long
