"""Frames on the control socket: a length and JSON, both ways.

The host treats what comes out as untrusted, whoever wrote it.
"""

import json
import os
from typing import Any

HEADER = 4
MAX_FRAME = 64 * 2**20


def send(fd: int, message: dict[str, Any]) -> None:
    """Write one frame."""
    write_all(fd, pack(message))


def pack(message: dict[str, Any]) -> bytes:
    """One frame."""
    body = json.dumps(message).encode()
    return len(body).to_bytes(HEADER, "big") + body


def write_all(fd: int, data: bytes) -> None:
    """Write it all to a blocking descriptor."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def receive(fd: int) -> dict[str, Any]:
    """Read one frame.

    Raises:
        EOFError: the other side is gone.
    """
    length = int.from_bytes(read_exactly(fd, HEADER), "big")
    message: dict[str, Any] = json.loads(read_exactly(fd, length))
    return message


def read_exactly(fd: int, size: int) -> bytes:
    """So many bytes.

    Raises:
        EOFError: there are fewer.
    """
    parts, missing = [], size
    while missing:
        part = os.read(fd, min(missing, 2**20))
        if not part:
            raise EOFError
        parts.append(part)
        missing -= len(part)
    return b"".join(parts)
