"""What a child that has closed itself in can still do; each wall is also taken away once."""

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from confine_attacks_kit import (
    ATTACKS,
    FILE_ATTACKS,
    NOT_EVERYWHERE,
    PERMISSIVE_ABI,
    Attack,
    attack_files,
    call,
)
from confine_kit import KERNEL_ABI, Decoys, Wall, confined
from confine_thin_kit import confined_thin

from agentgym.tools.sandbox.inside import landlock
from agentgym.tools.sandbox.inside.confine import Confinement
from agentgym.tools.sandbox.walls import uids

pytestmark = pytest.mark.skipif(KERNEL_ABI == 0, reason="this kernel has no Landlock")

IS_ROOT = os.geteuid() == 0


@pytest.fixture(scope="module")
def decoys() -> Iterator[Decoys]:
    with Decoys() as made:
        yield made


attacks = pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)


def harm(attack: Attack, decoys: Decoys, wall: Wall) -> list[str]:
    before = decoys.state()
    told = confined_thin(attack.run, decoys, wall)
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


@pytest.mark.parametrize("name", FILE_ATTACKS)
def test_files_outside_are_closed(name: str, decoys: Decoys):
    """Though the user that the code has owns them."""
    before = decoys.state()
    told = confined_thin(partial(attack_files, name), decoys)

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
