"""What the attacks share; it goes into the sandbox with each of them, as the module `prelude`.

`D` is what an attacker may know: where the decoys are, never what they hold. An attack counts what
it managed to do; the host looks for the secrets in what it printed, and at the decoys themselves.
"""

import ctypes
import errno
import json
import os
import platform
import sys
import time

D = json.loads(sys.stdin.readline())
LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.syscall.restype = ctypes.c_long
SECRET = b"DEC" + b"OY-"
MIB = 2**20

X86 = platform.machine() == "x86_64"
# name: (x86_64, aarch64); -1 where there is none
NUMBERS = {
    "add_key": (248, 217), "adjtimex": (159, 171), "bpf": (321, 280), "chroot": (161, 51),
    "clock_settime": (227, 112), "clone": (56, 220), "delete_module": (176, 106),
    "fanotify_init": (300, 262), "fchmodat2": (452, 452), "finit_module": (313, 273),
    "fsopen": (430, 430), "io_uring_setup": (425, 425), "ioperm": (173, -1), "iopl": (172, -1),
    "ioprio_get": (252, 31), "ioprio_set": (251, 30), "kcmp": (312, 272),
    "kexec_load": (246, 104), "keyctl": (250, 219), "kill": (62, 129), "memfd_create": (319, 279),
    "memfd_secret": (447, 447), "modify_ldt": (154, -1), "mount": (165, 40),
    "mq_open": (240, 180), "mq_timedreceive": (243, 183), "mq_unlink": (241, 181),
    "msgctl": (71, 187), "msgget": (68, 186), "msgrcv": (70, 188),
    "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265), "open_tree": (428, 428),
    "perf_event_open": (298, 241), "personality": (135, 92), "pidfd_getfd": (438, 438),
    "pidfd_open": (434, 434), "pidfd_send_signal": (424, 424), "pivot_root": (155, 41),
    "prlimit64": (302, 261), "process_madvise": (440, 440), "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271), "ptrace": (101, 117), "quotactl": (179, 60),
    "reboot": (169, 142), "request_key": (249, 218), "rt_sigqueueinfo": (129, 138),
    "sched_setaffinity": (203, 122), "sched_setscheduler": (144, 119), "semctl": (66, 191),
    "semget": (64, 190), "setdomainname": (171, 162), "sethostname": (170, 161),
    "setns": (308, 268), "setpriority": (141, 140), "settimeofday": (164, 170),
    "shmat": (30, 196), "shmctl": (31, 195), "shmget": (29, 194), "socket": (41, 198),
    "swapoff": (168, 225), "syslog": (103, 116), "tgkill": (234, 131), "tkill": (200, 130),
    "umount2": (166, 39), "unshare": (272, 97), "userfaultfd": (323, 282), "vhangup": (153, 58),
}  # fmt: skip

REFUSED = (OSError, ValueError, ZeroDivisionError, ImportError, MemoryError, RuntimeError)
"""Anything else is a fault of the attack, which then ends without a report."""

done: dict[str, str] = {}
refused: dict[str, str] = {}


def syscall(name, *args):
    """The result; raises OSError."""
    number = NUMBERS[name][0 if X86 else 1]
    words = [ctypes.c_long(a) if isinstance(a, int) else a for a in args]
    result = LIBC.syscall(ctypes.c_long(number), *words)
    if result < 0:
        raise OSError(ctypes.get_errno(), name)
    return result


def attempt(name, function, *args):
    """What it returns, counted as a success; None if it was refused."""
    try:
        value = function(*args)
    except REFUSED as problem:
        refused[name] = f"{type(problem).__name__}: {problem}"[:80]
        return None
    done[name] = repr(value)[:120]
    return value


def reach(name, *args):
    """A success if the kernel looked at the arguments, whatever it thought of them."""
    label = f"syscall {name}"
    try:
        done[label] = str(syscall(name, *args))
    except OSError as problem:
        here = done if problem.errno not in (errno.EPERM, errno.ENOSYS, errno.EACCES) else refused
        here[label] = errno.errorcode[problem.errno or 0]


def leak(name, function, *args):
    """A success if what it returns holds one of the secrets."""
    try:
        value = function(*args)
    except REFUSED as problem:
        refused[name] = f"{type(problem).__name__}: {problem}"[:80]
        return
    value = value if isinstance(value, bytes) else str(value).encode()
    at = value.find(SECRET)
    if at < 0:
        refused[name] = f"read {len(value)} bytes without a secret"
        return
    done[name] = value[at : at + 60].decode("latin-1")


def read(path, size=65536):
    with open(path, "rb") as file:
        return file.read(size)


def processes():
    """Ids of those that can be seen."""
    try:
        return [name for name in os.listdir("/proc") if name.isdigit()]
    except OSError as problem:
        refused["list /proc"] = str(problem)
        return []


def rename(name=None):
    """Be found by the host under the mark of this attack."""
    LIBC.prctl(15, (name or D["mark"]).encode(), 0, 0, 0)


def in_child(function, *args):
    """Exit status of a child that runs it; 0 if it raised nothing."""
    pid = os.fork()
    if pid == 0:
        try:
            function(*args)
        except BaseException:
            os._exit(7)
        os._exit(0)
    return os.waitpid(pid, 0)[1]


def report(*, succeeded=None, **seen):
    """One line of JSON; the host reads the last one."""
    done.update({key: str(value) for key, value in seen.items()})
    ok = bool(done) if succeeded is None else succeeded
    line = json.dumps({"succeeded": ok, "seen": done, "refused": refused})
    os.write(1, b"\n" + line.encode() + b"\n")


def until(seconds):
    """True until that much time has passed."""
    start = time.monotonic()
    return lambda: time.monotonic() - start < seconds


if not D.get("nameless"):
    rename()
