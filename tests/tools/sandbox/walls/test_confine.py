"""What a child that has closed itself in can still do; each wall is also taken away once."""

import ctypes
import fcntl
import os
import resource
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confine_kit import KERNEL_ABI, Decoys, Wall, confined

from agentgym.tools.sandbox.inside import landlock
from agentgym.tools.sandbox.inside.confine import Confinement
from agentgym.tools.sandbox.walls import uids
from agentgym.tools.sandbox.walls.syscalls import machine, this_machine

pytestmark = pytest.mark.skipif(KERNEL_ABI == 0, reason="this kernel has no Landlock")

LIBC = ctypes.CDLL(None, use_errno=True)
CALLS = machine(this_machine()).calls
IS_ROOT = os.geteuid() == 0
PERMISSIVE_ABI = 5
"""The last version without scopes for signals."""


@pytest.fixture(scope="module")
def decoys() -> Iterator[Decoys]:
    with Decoys() as made:
        yield made


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
attacks = pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)


def harm(attack: Attack, decoys: Decoys, wall: Wall) -> list[str]:
    before = decoys.state()
    told = confined(attack.run, decoys, wall)
    after = decoys.state()
    changed = [name for name in after if after[name] != before.get(name)]
    words = [told.text] if told.text.strip("'").isalpha() and told.text[0] == "'" else []
    return [*changed, *words]


@attacks
def test_the_wall_holds(attack: Attack, decoys: Decoys):
    """Nothing outside changes, and nothing is told that should not be."""
    wall = Wall(abi=min(attack.abi, KERNEL_ABI))

    assert harm(attack, decoys, wall) == []


@pytest.mark.slow
@attacks
def test_without_its_rule_the_attack_succeeds(attack: Attack):
    """So the rule is what held it, and the attack is one."""
    if attack.abi > KERNEL_ABI:
        pytest.skip("this kernel is older than the one that is acted")
    wall = Wall(abi=attack.abi, without=attack.without)
    with Decoys() as fresh:
        done = harm(attack, fresh, wall)

    if not done and attack.run in NOT_EVERYWHERE:
        pytest.skip("not possible here at all")
    assert done


@pytest.mark.skipif(KERNEL_ABI < landlock.SCOPES_SIGNALS, reason="this Landlock has no scopes")
@pytest.mark.parametrize(
    "attack", [a for a in ATTACKS if a.abi == PERMISSIVE_ABI], ids=lambda attack: attack.name
)
def test_scopes_hold_where_the_filter_lets_signals_through(attack: Attack, decoys: Decoys):
    """A second wall behind rules that are left out."""
    assert harm(attack, decoys, Wall(without=attack.without)) == []


def test_a_program_can_stop_its_children_where_landlock_has_scopes(decoys: Decoys):
    """Timeouts of subprocesses depend on it."""

    def stop_a_child(d: Decoys) -> int:
        child = os.fork()
        if child == 0:
            time.sleep(0.3)
            os._exit(0)
        os.kill(child, signal.SIGTERM)
        return os.waitpid(child, 0)[1]

    expected = str(int(signal.SIGTERM))
    assert confined(stop_a_child, decoys, Wall(abi=5, owns_uid=True)).text == expected
    if KERNEL_ABI >= landlock.SCOPES_SIGNALS:
        assert confined(stop_a_child, decoys).text == expected
    assert confined(stop_a_child, decoys, Wall(abi=5)).text == "EPERM"


@pytest.mark.parametrize("whom", ["parent", "group of it", "all"])
def test_the_runner_survives_its_own_user(whom: str, decoys: Decoys):
    """It is outside of the walls, and has the uid of what is inside."""

    def attack(d: Decoys) -> None:
        target = {"parent": os.getppid(), "group of it": -os.getppid(), "all": -1}[whom]
        os.kill(target, signal.SIGUSR1)

    if whom == "all" and not IS_ROOT:
        pytest.skip("it would hit this user's other processes, were it to succeed")
    open_wall = Wall(abi=5, owns_uid=True, without=("kill",))

    assert confined(attack, decoys, Wall(abi=5, owns_uid=True)).runner_lives
    with Decoys() as fresh:
        assert not confined(attack, fresh, open_wall).runner_lives


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


@pytest.mark.parametrize("name", FILE_ATTACKS)
def test_files_outside_are_closed(name: str, decoys: Decoys):
    """Though the user that the code has owns them."""
    before = decoys.state()
    told = confined(FILE_ATTACKS[name], decoys)

    assert told.text in {"EACCES", "EXDEV", "EPERM", "ENOENT", "ENXIO"}
    assert decoys.state() == before


def test_what_is_allowed_works(decoys: Decoys):
    """Else every test above would pass behind a wall that lets nothing through."""

    def use(d: Decoys) -> tuple[str, list[str], bytes, bytes]:
        os.mkdir("own")
        os.chdir("own")
        os.mkdir("folder")
        Path("folder/file").write_text("mine")
        os.rename("folder/file", "file")
        os.rmdir("folder")
        os.mkfifo("pipe")
        Path("/dev/null").write_text("gone")
        names = sorted(os.listdir())
        os.unlink("pipe")
        os.unlink("file")
        zeros = os.read(os.open("/dev/zero", os.O_RDONLY), 2)
        return d.book.read_text(), names, zeros, os.read(os.open("/dev/urandom", 0), 0)

    assert confined(use, decoys).text == repr(("secret", ["file", "pipe"], b"\0\0", b""))


def test_a_path_is_open_once_it_is_allowed(decoys: Decoys):
    """The rules are what closes it."""
    wall = Wall(read=(str(decoys.outside),))

    assert confined(lambda d: d.file.read_text(), decoys, wall).text == "'secret'"


def test_programs_that_are_run_are_closed_in_too(decoys: Decoys):
    """A new program has its parent's walls."""

    def run(d: Decoys) -> int:
        return os.waitstatus_to_exitcode(os.system(f"cat {d.file} 2> /dev/null"))

    assert confined(run, decoys).text == "1"


@pytest.mark.skipif(KERNEL_ABI < landlock.SCOPES_SIGNALS, reason="this Landlock has no scopes")
def test_landlock_closes_networks_by_itself(decoys: Decoys):
    """Behind the filter, which closes them as well."""
    port = decoys.tcp.getsockname()[1]
    without = ("socket", "connect")

    def tcp(d: Decoys) -> str:
        socket.socket().connect(("127.0.0.1", port))
        return "connected"

    def abstract(d: Decoys) -> str:
        socket.socket(socket.AF_UNIX).connect(d.abstract)
        return "connected"

    assert confined(tcp, decoys, Wall(without=without)).text == "EACCES"
    assert confined(tcp, decoys, Wall(without=without, abi=3)).text == "'connected'"
    assert confined(abstract, decoys, Wall(without=without)).text == "EPERM"
    assert confined(abstract, decoys, Wall(without=without, abi=5)).text == "'connected'"


@pytest.mark.skipif(not IS_ROOT, reason="only root can pass on a capability")
@pytest.mark.parametrize("capability", [1, 2], ids=["CAP_DAC_OVERRIDE", "CAP_DAC_READ_SEARCH"])
def test_a_capability_to_read_opens_nothing_that_the_rules_close(capability: int, decoys: Decoys):
    """It only makes up for a folder that its own user could not enter."""
    if not uids.has_capability(capability):
        pytest.skip("this root has not got it")
    private = decoys.library / f"private-{capability}"
    private.mkdir(mode=0o700)
    (private / "python").write_text("library")
    os.chmod(decoys.file, 0)
    wall = Wall(capability=capability)

    def handle(d: Decoys) -> int:
        return call("open_by_handle_at", -100, None, 0)

    def read(d: Decoys) -> str:
        return (private / "python").read_text()

    assert confined(read, decoys, Wall()).text == "EACCES"
    assert confined(read, decoys, wall).text == "'library'"
    assert confined(lambda d: Path(d.file).read_text(), decoys, wall).text == "EACCES"
    assert confined(lambda d: Path("/etc/shadow").read_text(), decoys, wall).text == "EACCES"
    assert confined(handle, decoys, wall).text == "EPERM"
    os.chmod(decoys.file, 0o640)


def test_a_process_with_threads_is_not_closed_in(decoys: Decoys):
    """The others would stay outside."""

    def start_a_thread() -> None:
        threading.Thread(target=threading.Event().wait, daemon=True).start()

    os.register_at_fork(after_in_child=_Once(start_a_thread, depth=2))

    assert "several threads" in confined(lambda d: "inside", decoys).text


class _Once:
    """Runs a function in the child of a child, once."""

    def __init__(self, run: Callable[[], None], *, depth: int) -> None:
        self._run, self._pid, self._depth = run, os.getpid(), depth

    def __call__(self) -> None:
        self._depth -= 1
        if self._depth == 0 and not _Once.done:
            self._run()

    done = False


def test_a_kernel_without_landlock_is_no_wall():
    """It must not start without a word."""
    with pytest.raises((OSError, KeyError)):
        Confinement(
            {
                "read": [],
                "listed": [],
                "use": [],
                "write": [],
                "filter": "",
                "abi": 0,
                "user": None,
                "capability": None,
            }
        )
