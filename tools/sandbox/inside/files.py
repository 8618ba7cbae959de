"""Files of the working directory, read and written by a child inside its walls.

A path is walked from the working directory, name by name, without following links: what the code
puts there can lead nowhere else, and a pipe or device in place of a file cannot hold anyone up.
"""

import base64
import json
import os
import stat
from contextlib import suppress
from typing import Any, NoReturn

from agentgym.tools.sandbox.inside import wire
from agentgym.tools.sandbox.inside.child import RESULT

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK


def run(request: "dict[str, Any]", root: str) -> NoReturn:
    """Do what is asked, report it, and end."""
    try:
        answer = ["data", _act(request, root)]
    except OSError as error:
        answer = ["refused", f"{request['path']}: {error.strerror or error}"]
    except ValueError as error:
        answer = ["refused", f"{request['path']}: {error}"]
    wire.write_all(RESULT, json.dumps({"value": answer}).encode() + b"\n")
    os._exit(0)


def _act(request: "dict[str, Any]", root: str) -> str:
    if request["op"] == "write":
        _write(root, request["path"], base64.b64decode(request["data"]))
        return ""
    return base64.b64encode(_read(root, request["path"], request["max_bytes"])).decode()


def _write(root: str, path: str, data: bytes) -> None:
    *folders, name = _parts(path)
    folder = os.open(root, _FOLDER)
    for part in folders:
        with suppress(FileExistsError):
            os.mkdir(part, dir_fd=folder)
        folder = os.open(part, _FOLDER, dir_fd=folder)
    fd = os.open(name, _WRITE, 0o644, dir_fd=folder)
    _check_regular(fd)
    wire.write_all(fd, data)


def _read(root: str, path: str, max_bytes: int) -> bytes:
    *folders, name = _parts(path)
    folder = os.open(root, _FOLDER)
    for part in folders:
        folder = os.open(part, _FOLDER, dir_fd=folder)
    fd = os.open(name, _READ, dir_fd=folder)
    _check_regular(fd)
    data = b""
    while len(data) <= max_bytes and (chunk := os.read(fd, max_bytes + 1 - len(data))):
        data += chunk
    if len(data) > max_bytes:
        raise ValueError(f"larger than the {max_bytes} bytes that may be read")
    return data


def _parts(path: str) -> list[str]:
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if path.startswith("/") or ".." in parts or not parts or "\0" in path:
        raise ValueError("name a file under the working directory, without '..'")
    return parts


def _check_regular(fd: int) -> None:
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        raise ValueError("no regular file")
