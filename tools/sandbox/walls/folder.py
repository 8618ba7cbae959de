"""The folder of one sandbox on the host's file system, where there is no file system of its own."""

import os
import shutil
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from agentgym.errors import SandboxError
from agentgym.tools.sandbox.inside import folders
from agentgym.tools.sandbox.walls.marks import mark
from agentgym.tools.sandbox.walls.packages import Entry


class Folder(NamedTuple):
    """What lies in it."""

    path: str
    workdir: str
    scratch: str
    packages: str
    """Links to what may be imported."""

    def remove(self) -> None:
        """Delete it, as far as it is still there and however deep; no link is followed."""
        shutil.rmtree(self.path, ignore_errors=True)
        with suppress(OSError):
            folders.remove(self.path)


def make_folder(entries: Sequence[Entry], *, owner: int | None = None) -> Folder:
    """Make one in the system's folder for temporary files.

    Args:
        entries: packages to link to.
        owner: uid and gid that it is given to.

    Raises:
        SandboxError: it cannot be made; nothing is left of it.
    """
    try:
        path = os.path.realpath(tempfile.mkdtemp(prefix=mark()))
    except OSError as error:
        raise SandboxError(f"no folder for a sandbox: {error}") from error
    folder = Folder(path, f"{path}/work", f"{path}/tmp", f"{path}/packages")
    try:
        for part in folder[1:]:
            os.mkdir(part, 0o700)
        for entry in entries:
            os.symlink(entry.path, f"{folder.packages}/{entry.name}")
        if owner is not None:
            for part in folder:
                os.chown(part, owner, owner)
    except OSError as error:
        folder.remove()
        raise SandboxError(f"no folder for a sandbox: {error}") from error
    return folder
