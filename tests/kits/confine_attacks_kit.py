"""What code behind a wall may try against what is outside, each with the rules that hold it."""

import ctypes
import fcntl
import os
import resource
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from confine_kit import KERNEL_ABI, Decoys

from agentgym.tools.sandbox.walls.syscalls import machine, this_machine

LIBC = ctypes.CDLL(None, use_errno=True)
CALLS = machine(this_machine()).calls
PERMISSIVE_ABI = 5
"""The last version without scopes for signals."""


def call(name: str, *arguments: Any) -> int:
    """A system call by its name, past the C library."""
    words = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    result: int = LIBC.syscall(ctypes.c_long(CALLS[name].number), *words)
    if result < 0:
        raise OSError(ctypes.get_errno(), name)
    return result


def change_times(d: Decoys) -> None:
    os.utime(d.file, (1, 1))


def change_mode(d: Decoys) -> None:
    os.chmod(d.file, 0o777)


def change_mode_of_open_file(d: Decoys) -> None:
    os.fchmod(os.open(d.book, os.O_RDONLY), 0o777)


def change_group(d: Decoys) -> str:
    os.chown(d.file, -1, os.getgid())
    return "changed"


def set_attribute(d: Decoys) -> None:
    os.setxattr(d.file, "user.attack", b"1")


def cut_short(d: Decoys) -> None:
    os.truncate(d.file, 1)


def renice(d: Decoys) -> None:
    os.setpriority(os.PRIO_PROCESS, d.process.pid, os.nice(0) + 5)


def reschedule(d: Decoys) -> None:
    os.sched_setscheduler(d.process.pid, os.SCHED_BATCH, os.sched_param(0))


def pin(d: Decoys) -> None:
    os.sched_setaffinity(d.process.pid, {max(os.sched_getaffinity(0))})


def limit(d: Decoys) -> None:
    resource.prlimit(d.process.pid, resource.RLIMIT_NOFILE, (99, 99))


def wait_on_purpose(d: Decoys) -> str:
    return "slow" if os.nice(0) < os.nice(7) else ""


def use_socket_file(d: Decoys) -> str:
    socket.socket(socket.AF_UNIX).connect(d.stream)
    return "connected"


def redirect_a_pair(d: Decoys) -> None:
    one, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    one.connect(d.datagram)
    one.send(b"redirected")


def send_from_a_pair(d: Decoys) -> None:
    one, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    one.sendto(b"sent", d.datagram)


def message_from_a_pair(d: Decoys) -> None:
    one, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    one.sendmsg([b"message"], [], 0, d.datagram)


def pass_descriptor(d: Decoys) -> str:
    one, _ = socket.socketpair()
    socket.send_fds(one, [b"x"], [0])
    return "passed"


def watch_a_folder(d: Decoys) -> str:
    queue = call("inotify_init1", 0)
    call("inotify_add_watch", queue, os.fsencode(d.outside), 0xFFF)
    return "watched"


def hold_up_writers(d: Decoys) -> str:
    fcntl.fcntl(os.open(d.book, os.O_RDONLY), fcntl.F_SETLEASE, fcntl.F_RDLCK)
    return "held"


def make_memory_file(d: Decoys) -> str:
    return "made" if os.memfd_create("attack") else ""


def make_shared_memory(d: Decoys) -> str:
    made = call("shmget", 0, 4096, 0o600)
    call("shmctl", made, 0, 0)
    return "made"


def make_user_namespace(d: Decoys) -> str:
    call("unshare", 0x10000000)
    return "made"


def add_key(d: Decoys) -> str:
    call("add_key", b"user", b"attack", b"x", 1, -2)
    return "added"


def hide_from_proc(d: Decoys) -> str:
    LIBC.prctl(4, 0, 0, 0, 0)
    return "" if LIBC.prctl(3, 0, 0, 0, 0) else "hidden"


def filter_itself(d: Decoys) -> str:
    call("seccomp", 2, 0, None)
    return "not reached"


def signal_by_kill(d: Decoys) -> None:
    os.kill(d.process.pid, signal.SIGKILL)


def signal_by_tgkill(d: Decoys) -> None:
    call("tgkill", d.process.pid, d.process.pid, signal.SIGKILL)


def signal_by_tkill(d: Decoys) -> None:
    call("tkill", d.process.pid, signal.SIGKILL)


def signal_by_descriptor(d: Decoys) -> None:
    signal.pidfd_send_signal(os.pidfd_open(d.process.pid), signal.SIGKILL)


def signal_by_queue(d: Decoys) -> None:
    info = (ctypes.c_int * 32)(signal.SIGTERM, 0, -1)
    call("rt_sigqueueinfo", d.process.pid, signal.SIGTERM, info)


def signal_by_file(d: Decoys) -> None:
    one, other = socket.socketpair()
    fcntl.fcntl(one, fcntl.F_SETOWN, d.process.pid)
    fcntl.fcntl(one, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(one, fcntl.F_SETFL, os.O_ASYNC)
    other.send(b"x")


class Attack(NamedTuple):
    """What is tried, and the rules that only it needs to be without."""

    run: Callable[[Decoys], Any]
    without: tuple[str, ...]
    abi: int = KERNEL_ABI

    @property
    def name(self) -> str:
        return self.run.__name__


ATTACKS = [
    Attack(change_times, ("utimensat",)),
    Attack(change_mode, ("chmod", "fchmodat")),
    Attack(change_mode_of_open_file, ("fchmod",)),
    Attack(change_group, ("chown", "fchownat")),
    Attack(set_attribute, ("setxattr",)),
    Attack(cut_short, ("truncate",), abi=2),
    Attack(renice, ("setpriority",)),
    Attack(reschedule, ("sched_setscheduler",)),
    Attack(pin, ("sched_setaffinity",)),
    Attack(limit, ("prlimit64",)),
    Attack(wait_on_purpose, ("setpriority",)),
    Attack(use_socket_file, ("socket", "connect")),
    Attack(redirect_a_pair, ("socketpair", "connect")),
    Attack(send_from_a_pair, ("socketpair", "sendto")),
    Attack(message_from_a_pair, ("socketpair", "sendmsg")),
    Attack(pass_descriptor, ("sendmsg",)),
    Attack(watch_a_folder, ("inotify_init1", "inotify_add_watch")),
    Attack(hold_up_writers, ("fcntl",)),
    Attack(make_memory_file, ("memfd_create",)),
    Attack(make_shared_memory, ("shmget", "shmctl")),
    Attack(add_key, ("add_key",)),
    Attack(hide_from_proc, ("prctl",)),
    Attack(make_user_namespace, ("unshare",)),
    Attack(signal_by_kill, ("kill",), PERMISSIVE_ABI),
    Attack(signal_by_tgkill, ("tgkill",), PERMISSIVE_ABI),
    Attack(signal_by_tkill, ("tkill",), PERMISSIVE_ABI),
    Attack(signal_by_descriptor, ("pidfd_send_signal",), PERMISSIVE_ABI),
    Attack(signal_by_queue, ("rt_sigqueueinfo",), PERMISSIVE_ABI),
    Attack(signal_by_file, ("fcntl",), PERMISSIVE_ABI),
]
NOT_EVERYWHERE = (set_attribute, make_user_namespace, add_key, pin)
"""What some file systems, kernels and containers refuse by themselves."""

FILE_ATTACKS: dict[str, Callable[[Decoys], Any]] = {
    "read": lambda d: d.file.read_text(),
    "list": lambda d: os.listdir(d.outside),
    "write": lambda d: d.file.write_text("x"),
    "create": lambda d: (d.outside / "new").write_text("x"),
    "make a folder": lambda d: (d.outside / "new").mkdir(),
    "delete": lambda d: d.file.unlink(),
    "rename": lambda d: d.file.rename(d.outside / "other"),
    "move in": lambda d: d.file.rename("stolen"),
    "link in": lambda d: os.link(d.file, "stolen"),
    "move out": lambda d: (Path("mine").write_text("x"), os.rename("mine", d.outside / "mine")),
    "through a link": lambda d: (os.symlink(d.file, "link"), Path("link").read_text()),
    "write what is read": lambda d: d.book.write_text("x"),
    "through /proc": lambda d: Path(f"/proc/{os.getppid()}/environ").read_bytes(),
    "by an open path": lambda d: os.read(
        os.open(f"/proc/self/fd/{os.open(d.file, os.O_PATH)}", os.O_RDONLY), 9
    ),
    "make a device": lambda d: os.mknod("null", 0o600 | 0o020000, os.makedev(1, 3)),
    "a disk": lambda d: os.open("/dev/vda", os.O_RDONLY),
    "a terminal": lambda d: os.open("/dev/ptmx", os.O_RDWR),
}


def attack_files(name: str, d: Decoys) -> Any:
    """One of them."""
    return FILE_ATTACKS[name](d)
