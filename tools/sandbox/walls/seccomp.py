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

from agentgym.tools.sandbox.inside.landlock import HAS_TRUNCATE, NEWEST, SCOPES_SIGNALS
from agentgym.tools.sandbox.inside.seccomp import OWN_PID, RUNNER_GROUP, RUNNER_PID
from agentgym.tools.sandbox.walls.bpf import ALLOW, FULL, Question, Rule, Span, program, refuse
from agentgym.tools.sandbox.walls.syscalls import Call, Group, machine, this_machine

_AF_UNIX, _AF_INET, _AF_INET6 = 1, 2, 10
_SOCK_STREAM, _SOCK_SEQPACKET, _SOCK_TYPE = 1, 5, 0xF
_SOL_SOCKET, _BUFFER_SIZES = 1, (7, 8, 32, 33)
_NEW_NAMESPACES, _CLONE_PTRACE, _CLONE_PARENT = 0x7E020000, 0x2000, 0x8000
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE = 1, 4
_EVERY_PROCESS = FULL
_PERSONALITIES = (0, FULL)

_TERMINAL = (
    *range(0x5401, 0x540C),
    *(0x540E, 0x540F, 0x5410, 0x5413, 0x5414, 0x541B, 0x5421, 0x5422, 0x5429, 0x5441),
    *(0x5450, 0x5451, 0x5460, 0x80045430, 0x40045431),
    *(0x802C542A, 0x402C542B, 0x402C542C, 0x402C542D),
)
"""Modes, sizes and groups of terminals; bytes waiting; close-on-exec. Not TIOCSTI, TIOCLINUX."""
_CLONE_FILE = (0x40049409, 0x4020940D)
_SOCKET_ADDRESSES = (0x8910, 0x8912, 0x8913, 0x8915, 0x8933)
_IOCTLS = (*_TERMINAL, *_CLONE_FILE, *_SOCKET_ADDRESSES)
_FCNTLS = (*range(8), 9, 11, 36, 37, 38, 1027, 1028, 1030, *range(1032, 1039))
"""Not F_SETOWN, F_SETSIG (signals to others), F_SETLEASE, F_NOTIFY (holding up, watching), nor
F_SETPIPE_SZ (memory that no limit counts)."""
_PRCTLS = (
    *(1, 2, 3, 4, 7, 8, 15, 16, 21, *range(23, 31), *range(36, 43)),
    *(47, 50, 51, 52, 54, 55, 56, 65, 66, 0x53564D41),
)
"""Of a process for itself. Not PR_SET_SECCOMP, PR_SET_MM, PR_SET_PTRACER, PR_SCHED_CORE."""

_NO_EFFECT, _NO_ACCESS, _NO = Rule(refuse(0)), Rule(refuse(EACCES)), Rule(refuse(EPERM))
_YES, _MISSING = Rule(ALLOW), Rule(refuse(ENOSYS))

_COMMON = {
    Group.ALWAYS: _YES,
    Group.REFUSED: _NO,
    Group.MISSING: _MISSING,
    Group.WITHOUT_EFFECT: _NO_EFFECT,
    Group.ATTRIBUTES: Rule(refuse(EOPNOTSUPP)),
}
_ALONE = {
    **_COMMON,
    **dict.fromkeys([Group.SIGNALS, Group.MODES, Group.TIMES, Group.OWNERS], _YES),
    **dict.fromkeys([Group.NETWORK, Group.WATCHING], _YES),
}
_BESIDE_THE_HOST = {
    **_COMMON,
    Group.TIMES: _NO_EFFECT,
    Group.OWNERS: _NO,
    Group.NETWORK: _NO_ACCESS,
    Group.WATCHING: _NO,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Host:
    """What Landlock and the user ids keep from the host."""

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
    landlock_abi: int = NEWEST,
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
    if shares_pids:
        host = _Host(owns_uid=owns_uid, abi=landlock_abi)
        rules = _rules(table.calls, _beside(host), _calls() | _calls_beside(host))
    else:
        rules = _rules(table.calls, _ALONE, _calls() | _calls_alone())
    rules |= {table.calls[name].number: _YES for name in without}
    return program(table.audit_arch, list(_spans(rules)), end=table.end)


def _rules(
    calls: Mapping[str, Call], groups: Mapping[Group, Rule], own: Mapping[str, Rule]
) -> dict[int, Rule]:
    """By number; a call's own rule goes before its group's."""
    return {call.number: own.get(name) or groups[call.group] for name, call in calls.items()}


def _spans(rules: Mapping[int, Rule]) -> Iterator[Span]:
    last = None
    for number in range(max(rules) + 2):
        rule = rules.get(number, _MISSING)
        if rule != last:
            yield Span(number, rule)
        last = rule


def _calls() -> dict[str, Rule]:
    """Rules by argument that hold behind every wall."""
    forbidden = _NEW_NAMESPACES | _CLONE_PTRACE | _CLONE_PARENT
    return {
        "ioctl": _only(1, _IOCTLS, otherwise=ENOTTY),
        "fcntl": _only(1, _FCNTLS, otherwise=EINVAL),
        "prctl": _only(0, _PRCTLS, otherwise=EINVAL),
        "personality": _only(0, _PERSONALITIES, otherwise=EPERM),
        "prlimit64": _only(0, (0,), otherwise=EPERM),
        "clone": Rule(ALLOW, (Question(0, refuse(EPERM), mask=forbidden),)),
        "setsockopt": _buffers_stay(),
    }


def _buffers_stay() -> Rule:
    """No limit counts what sockets hold."""
    other_level = Question(1, ALLOW, mask=FULL ^ _SOL_SOCKET)
    sizes = (Question(2, refuse(0), value=name) for name in _BUFFER_SIZES)
    return Rule(ALLOW, (other_level, *sizes))


def _calls_alone() -> dict[str, Rule]:
    """A network namespace does not hold the sockets of the kernel's own services, nor those that
    lead from a virtual machine to its host."""
    families = _only(0, (_AF_UNIX, _AF_INET, _AF_INET6), otherwise=EAFNOSUPPORT)
    open_calls = dict.fromkeys(["truncate", "utimensat", "sendto"], _YES)
    return {"socket": families, "socketpair": families, **open_calls}


def _beside(host: _Host) -> dict[Group, Rule]:
    modes = _YES if host.owns_uid else _NO_EFFECT
    return {**_BESIDE_THE_HOST, Group.MODES: modes, Group.SIGNALS: _signals(host)}


def _calls_beside(host: _Host) -> dict[str, Rule]:
    scoped = host.abi >= SCOPES_SIGNALS
    return {
        "socket": _NO_ACCESS,
        "socketpair": _pairs_that_stay(),
        "sendto": _without(4, refuse(EACCES)),
        "prctl": _stays_visible(),
        "truncate": _YES if host.abi >= HAS_TRUNCATE else _NO,
        "utimensat": _without(1, refuse(0)) if host.owns_uid else _NO_EFFECT,
        "pidfd_send_signal": _YES if scoped else _NO,
    }


def _signals(host: _Host) -> Rule:
    """Without Landlock's help: to all but the runner, where only that shares the user; else only to
    the process that enters the wall, and none of its children."""
    if host.abi >= SCOPES_SIGNALS:
        return _YES
    if not host.owns_uid:
        return _only(0, (OWN_PID,), otherwise=EPERM)
    spared = (RUNNER_PID, RUNNER_GROUP, _EVERY_PROCESS)
    return Rule(ALLOW, tuple(Question(0, refuse(EPERM), value=pid) for pid in spared))


def _pairs_that_stay() -> Rule:
    """Connected for good: one of datagrams could be pointed at a socket of the host."""
    other_family = Question(0, refuse(EACCES), mask=FULL ^ _AF_UNIX)
    types = (
        Question(1, ALLOW, value=kind, mask=_SOCK_TYPE) for kind in (_SOCK_STREAM, _SOCK_SEQPACKET)
    )
    return Rule(refuse(EACCES), (other_family, *types))


def _stays_visible() -> Rule:
    """A process cannot hide from the runner, nor outlive it, by a setting of its own."""
    without_effect = [
        Question(0, refuse(0), value=option) for option in (_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE)
    ]
    allowed = _only(0, _PRCTLS, otherwise=EINVAL)
    return Rule(allowed.otherwise, (*without_effect, *allowed.questions))


def _without(arg: int, verdict: int) -> Rule:
    """Allowed if a pointer is null."""
    halves = (Question(arg, verdict), Question(arg, verdict, high=True))
    return Rule(ALLOW, halves)


def _only(arg: int, values: Collection[int], *, otherwise: int) -> Rule:
    """Allowed for these values of an argument."""
    return Rule(refuse(otherwise), tuple(Question(arg, ALLOW, value=value) for value in values))
