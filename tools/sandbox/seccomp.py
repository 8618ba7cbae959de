"""The system call filter: an allow-list, built for the wall it stands behind.

With namespaces (level 3) files, processes and the network are the sandbox's own and the filter
keeps the kernel small. With Landlock (level 2) they are the host's, and the filter also closes what
Landlock leaves open to a process of the same user: modes and times of files, sockets, signals.

Arguments are compared by the half that the kernel reads: a command with bits above it is the same
command.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from errno import EACCES, EAFNOSUPPORT, EINVAL, ENOSYS, ENOTTY, EOPNOTSUPP, EPERM
from typing import NamedTuple

from agentgym.tools.sandbox import calls_allowed as calls
from agentgym.tools.sandbox.bpf import ALLOW, FULL, Rule, Span, Test, program, refuse
from agentgym.tools.sandbox.inside.landlock import HAS_TRUNCATE, SCOPES_SIGNALS
from agentgym.tools.sandbox.inside.seccomp import OWN_PID, RUNNER_GROUP, RUNNER_PID
from agentgym.tools.sandbox.syscalls import machine, this_machine

_NEWEST_ABI = 7
_AF_UNIX, _AF_INET, _AF_INET6 = 1, 2, 10
_SOCK_STREAM, _SOCK_DGRAM, _SOCK_SEQPACKET, _SOCK_TYPE_MASK = 1, 2, 5, 0xF
_NEW_NAMESPACES, _CLONE_PTRACE, _CLONE_PARENT = 0x7E020000, 0x2000, 0x8000
_SOL_SOCKET = 1
_BUFFER_SIZES = (7, 8, 32, 33)
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE = 1, 4
_EVERY_PROCESS = FULL
_PERSONALITIES = (0, FULL)

_TERMINAL = (
    *range(0x5401, 0x540C),
    *(0x540E, 0x540F, 0x5410, 0x5413, 0x5414, 0x541B, 0x5421, 0x5422, 0x5429, 0x5441),
    *(0x5450, 0x5451, 0x5460, 0x80045430, 0x40045431, 0x802C542A, 0x402C542B, 0x402C542C),
    0x402C542D,
)
"""Modes, sizes and groups of terminals; bytes waiting; close-on-exec. Not TIOCSTI, TIOCLINUX."""
_CLONE_FILE = (0x40049409, 0x4020940D)
_SOCKET_ADDRESSES = (0x8910, 0x8912, 0x8913, 0x8915, 0x8933)
_IOCTLS = (*_TERMINAL, *_CLONE_FILE, *_SOCKET_ADDRESSES)
_FCNTLS = (*range(8), 9, 11, 36, 37, 38, 1027, 1028, 1030, *range(1032, 1039))
"""Not F_SETOWN, F_SETSIG (signals to others), F_SETLEASE, F_NOTIFY (holding up, watching), nor
F_SETPIPE_SZ (memory that no limit counts)."""
_PRCTLS = (
    *(1, 2, 3, 4, 7, 8, 15, 16, 21, 23, 24, 25, 26, 27, 28, 29, 30, 36, 37, 38, 39, 40, 41, 42),
    *(47, 50, 51, 52, 54, 55, 56, 65, 66, 0x53564D41),
)
"""Of a process for itself. Not PR_SET_SECCOMP, PR_SET_MM, PR_SET_PTRACER, PR_SCHED_CORE."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wall:
    """What stands beside the filter."""

    shares_pids: bool
    owns_uid: bool
    abi: int


def namespace_filter() -> bytes:
    """For a sandbox with namespaces of its own, its runner included, on this machine.

    Raises:
        UsageError: there is no table for this machine.
    """
    return build_filter(this_machine(), shares_pids=False)


def build_filter(
    arch: str,
    *,
    shares_pids: bool,
    owns_uid: bool = True,
    landlock_abi: int = _NEWEST_ABI,
    without: Collection[str] = (),
) -> bytes:
    """A program for the kernel, an array of `struct sock_filter`.

    Args:
        arch: the machine, as `uname -m` names it.
        shares_pids: whether processes, files and network are the host's (level 2).
        owns_uid: whether no process and no file outside belongs to the sandbox's user, and it has
            no capability to act as if they did.
        landlock_abi: what Landlock can do here, if `shares_pids`.
        without: calls whose rule is left out, so that tests can see what each is there for.

    Raises:
        UsageError: there is no table for the machine.
    """
    table = machine(arch)
    rules = _rules(_Wall(shares_pids=shares_pids, owns_uid=owns_uid, abi=landlock_abi))
    rules |= dict.fromkeys(without, Rule(ALLOW))
    return program(table.audit_arch, list(_spans(table.numbers, rules)), end=table.end)


def _spans(numbers: Mapping[str, int], rules: Mapping[str, Rule]) -> Iterator[Span]:
    missing = Rule(refuse(ENOSYS))
    by_number = {numbers[name]: rule for name, rule in rules.items() if name in numbers}
    last = None
    for number in range(max(by_number) + 2):
        rule = by_number.get(number, missing)
        if rule != last:
            yield Span(number, rule)
        last = rule


class _Group(NamedTuple):
    names: Collection[str]
    rule: Rule


def _rules(wall: _Wall) -> dict[str, Rule]:
    groups = [
        _Group(calls.ALWAYS, Rule(ALLOW)),
        _Group(calls.REFUSED, Rule(refuse(EPERM))),
        _Group(calls.MISSING, Rule(refuse(ENOSYS))),
        _Group(calls.WITHOUT_EFFECT, Rule(refuse(0))),
        _Group(calls.XATTRS, Rule(refuse(EOPNOTSUPP))),
        *(_beside_the_host(wall) if wall.shares_pids else _on_its_own()),
    ]
    rules = {name: group.rule for group in groups for name in group.names}
    return _by_argument() | rules  # a wall's own rule for a call goes before the common one


def _by_argument() -> dict[str, Rule]:
    """Rules that hold behind every wall."""
    forbidden = _NEW_NAMESPACES | _CLONE_PTRACE | _CLONE_PARENT
    return {
        "ioctl": _only(1, _IOCTLS, otherwise=ENOTTY),
        "fcntl": _only(1, _FCNTLS, otherwise=EINVAL),
        "prctl": _only(0, _PRCTLS, otherwise=EINVAL),
        "personality": _only(0, _PERSONALITIES, otherwise=EPERM),
        "prlimit64": _only(0, (0,), otherwise=EPERM),
        "clone": Rule(ALLOW, (Test(0, refuse(EPERM), mask=forbidden),)),
        "setsockopt": Rule(ALLOW, _buffer_sizes()),
    }


def _buffer_sizes() -> tuple[Test, ...]:
    """Sizes of buffers, which no limit counts, stay as they are."""
    other_level = Test(1, ALLOW, mask=FULL ^ _SOL_SOCKET)
    return (other_level, *(Test(2, refuse(0), value=name) for name in _BUFFER_SIZES))


def _on_its_own() -> list[_Group]:
    """Signals, modes and sockets reach nothing but the sandbox; hosts of virtual machines and the
    kernel's own services are no part of a network namespace."""
    families = _only(0, (_AF_UNIX, _AF_INET, _AF_INET6), otherwise=EAFNOSUPPORT)
    own = calls.SIGNALS | calls.OWNER_ONLY | calls.TIMES | calls.OF_PATHS | calls.NETWORK
    return [
        _Group(own | calls.WATCHING | calls.UNSCOPED, Rule(ALLOW)),
        _Group(["socket", "socketpair"], families),
    ]


def _beside_the_host(wall: _Wall) -> list[_Group]:
    no_effect, no_access, no = Rule(refuse(0)), Rule(refuse(EACCES)), Rule(refuse(EPERM))
    pairs = Rule(
        refuse(EACCES),
        (
            Test(0, refuse(EACCES), mask=FULL ^ _AF_UNIX),
            *_only(1, (_SOCK_STREAM, _SOCK_SEQPACKET), otherwise=0, mask=_SOCK_TYPE_MASK).tests,
        ),
    )
    no_address = Rule(
        ALLOW, (Test(4, refuse(EACCES), mask=FULL), Test(4, refuse(EACCES), mask=FULL, high=True))
    )
    return [
        _Group({*calls.NETWORK, "socket"}, no_access),
        _Group(["socketpair"], pairs),
        _Group(["sendto"], no_address),
        _Group(calls.WATCHING, no),
        _Group(["prctl"], _stays_visible()),
        _Group(calls.TIMES, no_effect),
        _Group(["utimensat"], _by_descriptor() if wall.owns_uid else no_effect),
        _Group(calls.OWNER_ONLY, Rule(ALLOW) if wall.owns_uid else no_effect),
        _Group(calls.OF_PATHS, no),
        *([_Group(["truncate"], Rule(ALLOW))] if wall.abi >= HAS_TRUNCATE else []),
        *_signals(wall),
    ]


def _by_descriptor() -> Rule:
    """Times of an open file, which has no path."""
    without_effect = refuse(0)
    return Rule(ALLOW, (Test(1, without_effect, mask=FULL), Test(1, without_effect, high=True)))


def _stays_visible() -> Rule:
    """A process cannot hide from the runner, nor outlive it, by a setting of its own."""
    without_effect = [
        Test(0, refuse(0), value=option) for option in (_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE)
    ]
    allowed = _only(0, _PRCTLS, otherwise=EINVAL)
    return Rule(allowed.otherwise, (*without_effect, *allowed.tests))


def _signals(wall: _Wall) -> list[_Group]:
    if wall.abi >= SCOPES_SIGNALS:
        return [_Group({*calls.SIGNALS, "pidfd_send_signal"}, Rule(ALLOW))]
    itself = _only(0, (OWN_PID,), otherwise=EPERM)
    not_the_runner = Rule(
        ALLOW,
        tuple(Test(0, refuse(EPERM), value=n) for n in (RUNNER_PID, RUNNER_GROUP, _EVERY_PROCESS)),
    )
    return [
        _Group(calls.SIGNALS, not_the_runner if wall.owns_uid else itself),
        _Group(["pidfd_send_signal"], Rule(refuse(EPERM))),
    ]


def _only(arg: int, values: Collection[int], *, otherwise: int, mask: int = FULL) -> Rule:
    """Allowed for these values of an argument."""
    tests = tuple(Test(arg, ALLOW, value=value, mask=mask) for value in values)
    return Rule(refuse(otherwise), tests)
