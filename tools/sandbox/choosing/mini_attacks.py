"""What the self-test has code try in a sandbox; only the source of this file goes in.

An attack returns what it got, or nothing. That the system refused is what is hoped for; any other
failure would be a test that cannot fail, so it is reported as well.
"""

import ctypes
import os
import resource
import signal
import socket
import time
from collections.abc import Callable
from typing import Any

Aims = dict[str, Any]
_NEW_USER_NAMESPACE = 0x10000000
_PATIENCE_S = 0.5
_UNTIL_STOPPED_S = 3.0
"""Where nothing was refused, whoever watches must stop the code."""


def attempt(aims: Aims) -> dict[str, str]:
    """What each attack got, by name; empty where it got nothing."""
    return {name: _try(attack, aims) for name, attack in _ATTACKS.items()}


def multiply(most: int) -> int:
    """How many children could be made, up to `most`; they wait until they are killed."""
    children: list[int] = []
    try:
        while len(children) < most:
            child = os.fork()
            if child == 0:
                time.sleep(60)
                os._exit(0)
            children.append(child)
        time.sleep(_UNTIL_STOPPED_S)
    except OSError:
        pass
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return len(children)


def fill(size: int, megabytes: int) -> int:
    """How many files of `size` bytes could be kept, of as many as make up `megabytes`."""
    count = 0
    try:
        while count * size < megabytes * 2**20:
            with open(f"fill-{count}", "wb") as file:
                file.write(b"x" * size)
            count += 1
        time.sleep(_UNTIL_STOPPED_S)
    except OSError:
        pass
    return count


def _try(attack: Callable[[Aims], str], aims: Aims) -> str:
    try:
        return attack(aims)
    except OSError:
        return ""
    except Exception as error:  # noqa: BLE001 - an attack that is broken must not pass
        return f"could not be tried: {error!r}"


def _read(aims: Aims) -> str:
    return ", ".join(path for path in aims["secrets"] if _readable(path))


def _readable(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return bool(file.read(1))
    except OSError:
        return False


def _write(aims: Aims) -> str:
    with open(aims["writable"], "a") as file:
        file.write("changed")
    return str(aims["writable"])


def _environment(aims: Aims) -> str:
    seen = set(os.environ)
    for pid in _pids():
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                seen |= {item.split(b"=")[0].decode() for item in file.read().split(b"\0")}
        except OSError:
            continue
    return ", ".join(sorted(seen - set(aims["variables"]) - {""}))


def _processes(aims: Aims) -> str:
    return ", ".join(pid for pid in _pids() if aims["marker"] in _command(pid))


def _kill(aims: Aims) -> str:
    pid = aims["pid"]
    if str(pid) in _pids() and aims["marker"] not in _command(str(pid)):
        return ""  # another process of that number, in here
    os.kill(pid, signal.SIGKILL)
    return f"process {pid}"


def _pids() -> list[str]:
    try:
        return [name for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []


def _command(pid: str) -> str:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def _network(aims: Aims) -> str:
    addresses = {
        "a TCP port of this machine": (socket.AF_INET, ("127.0.0.1", aims["port"])),
        "an abstract socket": (socket.AF_UNIX, f"\0{aims['marker']}"),
        "a socket in a folder": (socket.AF_UNIX, aims["socket"]),
    }
    return ", ".join(name for name, (family, to) in addresses.items() if _reaches(family, to))


def _reaches(family: int, address: Any) -> bool:
    try:
        with socket.socket(family, socket.SOCK_STREAM) as client:
            client.settimeout(_PATIENCE_S)
            client.connect(address)
            return True
    except OSError:
        return False


def _limits(aims: Aims) -> str:
    wrong = []
    for name, most in aims["limits"].items():
        soft, hard = resource.getrlimit(getattr(resource, name))
        if hard == resource.RLIM_INFINITY or max(soft, hard) > most:
            wrong.append(f"{name}={hard}")
    return ", ".join(wrong)


def _memory(aims: Aims) -> str:
    try:
        return f"{len(bytearray(aims['too_much'])) >> 20} MB"
    except MemoryError:
        return ""


def _hidden_memory(_aims: Aims) -> str:
    return f"descriptor {os.memfd_create('probe')}"


def _namespaces(_aims: Aims) -> str:
    made = ctypes.CDLL(None, use_errno=True).unshare(_NEW_USER_NAMESPACE) == 0
    return "a user namespace" if made else ""


def _root(aims: Aims) -> str:
    """The machine's own uid 0, whatever it is called in here: it owns what root owns out there."""
    path = aims["owned_by_root"]
    is_root = path and os.stat(path).st_uid == os.geteuid()
    return "uid 0 of this machine" if is_root else ""


def _settings(_aims: Aims) -> str:
    path = "/proc/sys/kernel/core_pattern"
    os.close(os.open(path, os.O_WRONLY))
    return path


_ATTACKS: dict[str, Callable[[Aims], str]] = {
    "files cannot be read": _read,
    "files cannot be changed": _write,
    "variables are hidden": _environment,
    "processes are hidden": _processes,
    "processes cannot be killed": _kill,
    "network is closed": _network,
    "limits are set": _limits,
    "memory is limited": _memory,
    "no memory beside the limit": _hidden_memory,
    "not root": _root,
    "settings of the machine cannot be changed": _settings,
    "no new namespaces": _namespaces,
}
