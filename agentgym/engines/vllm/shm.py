"""Weights through shared memory, to servers of this machine.

A bucket is a file in memory that the server maps, not copies. It loses its name as soon as every
server has mapped it, so that it goes with the last of them, whoever dies when.
"""

import fcntl
import os
import tempfile
import weakref
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

from agentgym.engines.vllm.buffers import fill, lay_out
from agentgym.engines.vllm.transfer import SHM, Post
from agentgym.engines.weights import Bucket
from agentgym.errors import EngineError, boundary
from agentgym.threads import in_thread

_MEMORY = Path("/dev/shm")
_PREFIX = "agentgym-weights-"


class ShmSender:
    """One file per bucket, there only while the bucket is sent."""

    backend = SHM

    def __init__(self) -> None:
        parent = _MEMORY if os.access(_MEMORY, os.W_OK) else Path(tempfile.gettempdir())
        remove_leftovers(parent)
        with boundary(EngineError, f"cannot put weights into {parent}"):
            self._folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=parent))
        self._numbers = count()
        self._close = weakref.finalize(self, _give_back, self._folder, _held(self._folder))

    def init_info(self, server: int = 0) -> dict[str, Any]:
        """Nothing: there is no connection."""
        return {}

    async def send(self, bucket: Bucket, post: Post) -> None:
        """Write, post, remove.

        Raises:
            EngineError: no room for the bucket.
        """
        path = self._folder / str(next(self._numbers))
        entries, num_bytes = lay_out(bucket)
        try:
            with boundary(EngineError, f"cannot put {num_bytes} bytes of weights into {path}"):
                await in_thread(lambda: _write(path, num_bytes, bucket, entries))
            await post({"entries": entries, "num_bytes": num_bytes, "path": str(path)})
        finally:
            path.unlink(missing_ok=True)

    def close(self) -> None:
        """Remove the folder."""
        self._close()


def remove_leftovers(parent: Path) -> None:
    """Remove what processes left that were killed while they sent.

    An owner that is not to be seen may live in another container that shares this memory, so its
    folder counts.
    """
    for folder in parent.glob(f"{_PREFIX}*"):
        owner = folder.name.removeprefix(_PREFIX).partition("-")[0]
        if owner.isdigit() and not Path(f"/proc/{owner}").exists() and not _is_held(folder):
            _remove(folder)


def _held(folder: Path) -> int:
    """Lock a folder for as long as the descriptor is open, in this process or in forks of it."""
    held = os.open(folder, os.O_RDONLY)
    with suppress(OSError):  # some file systems lock no folders; then nothing is held
        fcntl.flock(held, fcntl.LOCK_EX)
    return held


def _is_held(folder: Path) -> bool:
    """Whether somebody has it, or nobody can tell."""
    try:
        probe = os.open(folder, os.O_RDONLY)
    except OSError:  # somebody else's, or gone
        return True
    try:
        fcntl.flock(probe, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(probe)
    return False


def _write(path: Path, num_bytes: int, bucket: Bucket, entries: Any) -> None:
    import torch

    with open(path, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        if not num_bytes:
            return
        os.posix_fallocate(file.fileno(), 0, num_bytes)  # else a full memory is a SIGBUS
    fill(
        torch.from_file(str(path), shared=True, size=num_bytes, dtype=torch.uint8), bucket, entries
    )


def _give_back(folder: Path, held: int) -> None:
    _remove(folder)
    os.close(held)


def _remove(folder: Path) -> None:
    with suppress(OSError):
        for path in folder.iterdir():
            path.unlink(missing_ok=True)
        folder.rmdir()
