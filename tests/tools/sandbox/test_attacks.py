"""Attacks on sandboxes: held off at every level that starts here, as whoever runs them.

That an attack can succeed is shown by what becomes of a sandbox without the protection that it is
there for, see `test_mutations`; of the others by a plain process, or by what `attack_list` names.
"""

import json
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from attack_kit import OLD_LANDLOCK
from attack_list import ATTACKS
from mutation_list import ANYONE, MUTATIONS
from who_kit import CONTAINED_USER, HERE, USER, Who, everyone

from agentgym.tools.sandbox.choosing import choose
from agentgym.tools.sandbox.settings import SandboxSettings
from agentgym.tools.sandbox.walls.starting import try_start

KIT = Path(__file__).parents[2] / "kits" / "attack_kit.py"
BACKENDS = ("bwrap", "landlock")
CORE = [attack.name for attack in ATTACKS if attack.core]
EVERY = [attack.name for attack in ATTACKS]
LONG = ("b12_inodes", "b13_deep_tree", "b21_comm_spoof", "b22_hidden_memory", "b30_hidden_disk")
"""Held off by the runner alone, whoever it runs as: left out in containers, and where an ordinary
user's files are in memory."""
SPENDING = (
    *("a04_fork_bomb", "a05_memory_one", "a06_memory_many", "a07_memory_files", "a08_cpu_spin"),
    *("a09_held_pipe", "a15_disk_fill", "a16_output_flood", "b23_stopped", "b25_thread_bomb"),
    *("b28_big_words", *LONG),
)
"""Held off by limits: left out of an ordinary user's in a container, which are those of either."""
IDLE = ("a09_held_pipe", "a11_zombies", "b16_moving_target", "b23_stopped")
"""Mostly waited for."""
LEFTOVERS = "z_leftovers"
ABSENT = "does not start here"

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="sandboxes of Linux")


@cache
def _verdicts(
    who: Who, backend: str, attacks: tuple[str, ...], *more: str
) -> dict[str, dict[str, Any]]:
    """What came of attacks, by name."""
    words = [str(KIT), backend, "--attacks", ",".join(attacks), *more]
    run = who.run(words, timeout_s=240)
    if ABSENT in run.stderr:
        pytest.skip(run.stderr.strip().splitlines()[-1])
    verdicts = [json.loads(line) for line in run.stdout.splitlines()]
    assert run.returncode == 0, run.stderr[-2000:]
    return {verdict["attack"]: verdict for verdict in verdicts}


def _check(who: Who, backend: str, attacks: Sequence[str]) -> None:
    verdicts = _verdicts(who, backend, tuple(attacks))
    harms = [f"{name}: {harm[:400]}" for name, v in verdicts.items() for harm in v["harms"]]

    assert sorted(verdicts) == sorted([*attacks, LEFTOVERS])
    assert not harms, "\n".join(harms)


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_first_attacks_are_held_off(backend: str) -> None:
    """Those that look for secrets and for ways out."""
    _check(HERE, backend, CORE)


def test_a_level_that_holds_starts_here() -> None:
    """Skipped attacks show nothing: without any back end of level 2 or 3 the suite fails."""
    tried = [
        [*launcher.probes(), try_start(launcher)]
        for launcher in choose.launchers(SandboxSettings())
    ]

    assert any(all(probe.ok for probe in probes) for probes in tried), tried


@pytest.mark.slow
@pytest.mark.parametrize("who", everyone(), ids=str)
@pytest.mark.parametrize("backend", BACKENDS)
def test_every_attack_is_held_off(backend: str, who: Who) -> None:
    """Also as an ordinary user, and where namespaces are refused."""
    attacks = [name for name in EVERY if name not in _left_out(backend, who)]
    try:
        _check(who, backend, attacks)
    except LookupError as problem:
        pytest.skip(str(problem))


def _left_out(backend: str, who: Who) -> tuple[str, ...]:
    if who == CONTAINED_USER:
        return SPENDING
    if who.contained or (backend, who) == ("bwrap", USER):
        return LONG
    return ("b12_inodes",) if who == USER else ()


@pytest.mark.slow
@pytest.mark.parametrize("who", [who for who in everyone() if not who.contained], ids=str)
def test_attacks_are_held_off_on_an_older_kernel(who: Who) -> None:
    """What Landlock learnt later, such as signals, the filter holds off."""
    attacks = [*CORE, "a10_daemon", "a21_kill_supervisor", "b15_sigio", "b24_interpreter"]
    try:
        _check(who, OLD_LANDLOCK, attacks)
    except LookupError as problem:
        pytest.skip(str(problem))


@pytest.mark.slow
def test_every_attack_succeeds_where_there_is_no_sandbox() -> None:
    """An attack that fails against a plain process would pass against a broken sandbox."""
    shown = {mutation.attack for mutation in MUTATIONS if mutation.needs == ANYONE}
    expected = [a.name for a in ATTACKS if not a.bare and a.name not in shown]
    others = tuple(name for name in expected if name not in IDLE)
    with ThreadPoolExecutor() as threads:
        idle = threads.submit(_verdicts, HERE, "bare", IDLE, "--at-once")
        seen = [_verdicts(HERE, "bare", others), idle.result()]
    harms = {name: verdicts[name]["harms"] for verdicts in seen for name in verdicts}
    assert sorted(harms) == sorted([*expected, LEFTOVERS])
    del harms[LEFTOVERS]
    held = {name for name, seen in harms.items() if all("no report" in h for h in seen)}

    assert held == set()
