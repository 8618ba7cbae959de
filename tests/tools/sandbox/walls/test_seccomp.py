"""The filter says of every call what it should, on machines that this one need not be."""

from errno import EACCES, EAFNOSUPPORT, EINVAL, ENOSYS, ENOTTY, EOPNOTSUPP, EPERM
from functools import cache

import pytest
from bpf_kit import ALLOWED, ARCHS, KILLED, outcome
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym.errors import UsageError
from agentgym.tools.sandbox.inside.seccomp import (
    OWN_PID,
    RUNNER_GROUP,
    RUNNER_PID,
    with_ids,
)
from agentgym.tools.sandbox.walls.seccomp import build_filter
from agentgym.tools.sandbox.walls.syscalls import Group, machine

MACHINES = ("x86_64", "aarch64")
filter_for = cache(build_filter)
ALONE = {name: filter_for(name, shares_pids=False) for name in MACHINES}
BESIDE = {name: filter_for(name, shares_pids=True, owns_uid=False) for name in MACHINES}
both = pytest.mark.parametrize("name", MACHINES)
words = st.integers(0, 2**64 - 1)
half_words = st.integers(0, 2**32 - 1)


def ask(code: bytes, name: str, call: str, *arguments: int) -> str | int:
    return outcome(code, ARCHS[name], machine(name).calls[call].number, arguments)


@both
def test_every_call_has_the_verdict_of_its_group(name: str):
    """Nothing is let through that is not listed, and what is listed works."""
    expected = {
        Group.ALWAYS: ALLOWED,
        Group.REFUSED: EPERM,
        Group.MISSING: ENOSYS,
        Group.WITHOUT_EFFECT: 0,
        Group.ATTRIBUTES: EOPNOTSUPP,
    }
    told = {c: (call.group, ask(BESIDE[name], name, c)) for c, call in machine(name).calls.items()}

    assert {
        c for c, (group, got) in told.items() if group in expected and got != expected[group]
    } == set()


@both
def test_a_call_that_no_table_has_does_not_exist(name: str):
    """Calls that a newer kernel adds are closed before anyone has looked at them."""
    newest = max(call.number for call in machine(name).calls.values())

    for number in (newest + 1, newest + 500, 0x3FFFFFFF):
        assert outcome(ALONE[name], ARCHS[name], number) == ENOSYS


@both
@given(number=st.integers(0, 2**32 - 1))
def test_calls_of_another_machine_kill(name: str, number: int):
    """The same number is another call there: 32-bit calls would pass a 64-bit list."""
    for arch in set(ARCHS.values()) - {ARCHS[name]}:
        assert outcome(ALONE[name], arch, number) == KILLED


@given(number=st.integers(0x40000000, 2**32 - 1))
def test_calls_of_the_x32_abi_kill(number: int):
    """It shares the name of x86_64, and has numbers of its own."""
    assert outcome(ALONE["x86_64"], ARCHS["x86_64"], number) == KILLED


def test_an_unknown_machine_is_refused():
    """No filter is no sandbox."""
    with pytest.raises(UsageError, match="riscv64"):
        build_filter("riscv64", shares_pids=False)


@both
def test_numbers_are_those_of_the_machine(name: str):
    """A table that is off by one would allow the wrong calls; these are in every manual."""
    known = {
        "x86_64": {"read": 0, "ptrace": 101, "execve": 59, "prlimit64": 302, "clone": 56},
        "aarch64": {"read": 63, "ptrace": 117, "execve": 221, "prlimit64": 261, "clone": 220},
    }
    calls = machine(name).calls

    assert {call: calls[call].number for call in known[name]} == known[name]
    assert calls["bpf"].number == {"x86_64": 321, "aarch64": 280}[name]
    assert calls["clone3"].number == 435
    assert len({call.number for call in calls.values()}) == len(calls)


@both
def test_a_rule_that_is_left_out_lets_its_call_through(name: str):
    """That is how every rule's worth can be seen."""
    for call in machine(name).calls:
        code = build_filter(name, shares_pids=True, owns_uid=False, without=(call,))

        assert ask(code, name, call, 2**64 - 1, 2**64 - 1) == ALLOWED


@both
@given(high=half_words)
def test_bits_that_the_kernel_does_not_read_change_nothing(name: str, high: int):
    """Above an `int` there is room for anything, which has fooled filters before."""
    tiocsti, above = 0x5412, high << 32

    assert ask(ALONE[name], name, "ioctl", 0, tiocsti | above) == ENOTTY
    assert ask(ALONE[name], name, "socket", 38 | above, 5) == EAFNOSUPPORT
    assert ask(ALONE[name], name, "prlimit64", 0 | above) == ALLOWED
    assert ask(ALONE[name], name, "prlimit64", 1 | above) == EPERM


@both
@given(flags=words, which=st.sampled_from([1 << n for n in (13, 15, 17, *range(25, 31))]))
def test_no_flags_make_a_namespace(name: str, flags: int, which: int):
    """Nor a child that is traced, nor one that is the runner's."""
    assert ask(ALONE[name], name, "clone", flags | which) == EPERM


@both
def test_threads_and_processes_can_be_made(name: str):
    """With the flags of the C library."""
    thread, process = 0x3D0F00, 0x1200011

    assert ask(BESIDE[name], name, "clone", thread) == ALLOWED
    assert ask(BESIDE[name], name, "clone", process) == ALLOWED


@both
@given(option=half_words)
def test_settings_of_a_process_are_a_short_list(name: str, option: int):
    """A filter of its own, memory maps, tracers, shared cores are not on it."""
    for forbidden in (22, 35, 62, 0x59616D61):
        assert ask(ALONE[name], name, "prctl", forbidden) == EINVAL
    assert ask(BESIDE[name], name, "prctl", option) in (ALLOWED, EINVAL, 0)
    assert ask(BESIDE[name], name, "prctl", 4) == 0
    assert ask(ALONE[name], name, "prctl", 4) == ALLOWED


@both
def test_network_alone_has_three_families(name: str):
    """A network namespace keeps in neither virtual machines' sockets nor the kernel's services."""
    families = {family: ask(ALONE[name], name, "socket", family, 1) for family in range(50)}

    assert {family for family, got in families.items() if got == ALLOWED} == {1, 2, 10}


@both
def test_beside_the_host_only_connected_pairs_of_streams_exist(name: str):
    """A pair of datagram sockets could be pointed at a socket of the host."""
    code, cloexec = BESIDE[name], 0o2000000
    stream, datagram = 1 | cloexec, 2 | cloexec

    assert ask(code, name, "socketpair", 1, stream) == ALLOWED
    assert ask(code, name, "socketpair", 1, datagram) == EACCES
    assert ask(code, name, "socketpair", 2, stream) == EACCES
    assert ask(code, name, "socket", 1, stream) == EACCES
    for call in ("connect", "bind", "listen", "accept4", "sendmsg", "sendmmsg"):
        assert ask(code, name, call) == EACCES


@both
@given(address=words.filter(bool))
def test_beside_the_host_nothing_is_sent_to_an_address(name: str, address: int):
    """Without one, it goes to the other end of a pair."""
    assert ask(BESIDE[name], name, "sendto", 3, 0, 0, 0, address) == EACCES
    assert ask(BESIDE[name], name, "sendto", 3, 0, 0, 0, 0) == ALLOWED


@both
@given(path=words.filter(bool))
def test_times_and_modes_stay_where_files_outside_are_the_users(name: str, path: int):
    """They seem to change, so that programs that copy files go on."""
    mine = filter_for(name, shares_pids=True, owns_uid=True)

    assert ask(BESIDE[name], name, "fchmodat", 0, path) == 0
    assert ask(BESIDE[name], name, "fchmod", 3) == 0
    assert ask(BESIDE[name], name, "utimensat", 3, 0) == 0
    assert ask(mine, name, "fchmod", 3) == ALLOWED
    assert ask(mine, name, "utimensat", 0, path) == 0
    assert ask(mine, name, "utimensat", 3, 0) == ALLOWED


@both
def test_paths_are_cut_short_only_where_landlock_looks(name: str):
    """It does from its third version on."""
    old = filter_for(name, shares_pids=True, landlock_abi=2)
    new = filter_for(name, shares_pids=True, landlock_abi=3)

    assert ask(old, name, "truncate") == EPERM
    assert ask(new, name, "truncate") == ALLOWED


SIGNALLING = ("kill", "tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo")


@both
@pytest.mark.parametrize("call", SIGNALLING)
@settings(max_examples=30)
@given(pid=half_words)
def test_without_scopes_a_shared_user_is_signalled_by_nobody(name: str, call: str, pid: int):
    """Landlock closes that from its sixth version on; before, a process can signal itself."""
    code = filter_for(name, shares_pids=True, owns_uid=False, landlock_abi=5)
    code = with_ids(code, {OWN_PID: 4242})

    assert ask(code, name, call, pid) == (ALLOWED if pid == 4242 else EPERM)
    assert ask(code, name, "pidfd_send_signal") == EPERM


@both
@pytest.mark.parametrize("call", SIGNALLING)
@settings(max_examples=30)
@given(pid=half_words)
def test_without_scopes_an_own_user_can_signal_all_but_the_runner(name: str, call: str, pid: int):
    """The runner has that user too; all at once, and its group, would be the runner as well."""
    code = filter_for(name, shares_pids=True, owns_uid=True, landlock_abi=5)
    code = with_ids(code, {RUNNER_PID: 4242, RUNNER_GROUP: -4242})
    spared = {4242, 2**32 - 4242, 2**32 - 1}

    assert ask(code, name, call, pid) == (EPERM if pid in spared else ALLOWED)
    for pid in spared:
        assert ask(code, name, call, pid) == EPERM


@both
def test_scopes_leave_signals_to_landlock(name: str):
    """Programs that stop their children work again."""
    code = filter_for(name, shares_pids=True, owns_uid=False, landlock_abi=6)

    assert {ask(code, name, call, 1) for call in (*SIGNALLING, "pidfd_send_signal")} == {ALLOWED}


@both
def test_sizes_of_buffers_stay_and_other_options_work(name: str):
    """No limit counts what sockets hold."""
    sndbuf, reuse, tcp, nodelay = 7, 2, 6, 1

    assert ask(ALONE[name], name, "setsockopt", 3, 1, sndbuf) == 0
    assert ask(ALONE[name], name, "setsockopt", 3, 1, reuse) == ALLOWED
    assert ask(ALONE[name], name, "setsockopt", 3, tcp, nodelay) == ALLOWED
    assert ask(ALONE[name], name, "setsockopt", 3, tcp, sndbuf) == ALLOWED


@both
def test_a_filter_is_as_short_as_the_kernel_wants_it(name: str):
    """And holds none of the placeholders that it was not asked for."""
    assert len(BESIDE[name]) // 8 <= 4096
    assert with_ids(ALONE[name], {OWN_PID: 1, RUNNER_PID: 1, RUNNER_GROUP: 1}) == ALONE[name]
