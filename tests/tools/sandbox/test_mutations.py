"""Each protection matters: without it the attack that it is there for succeeds."""

import json
import os
import signal
import subprocess
import sys
import time
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from mutation_list import ANYONE, MUTATIONS, ORDINARY, ROOT, Mutation, name_of
from processes_kit import alive
from who_kit import HERE, USER

KIT = Path(__file__).parents[2] / "kits" / "mutation_kit.py"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="sandboxes of Linux"),
]


@cache
def _outcomes(ordinary: bool) -> dict[str, dict[str, Any]]:
    """How the attacks went, by name of the mutation."""
    is_root = os.geteuid() == 0
    who = USER if ordinary and is_root else HERE
    kinds = [ORDINARY] if ordinary else [ANYONE, *([ROOT] if is_root else [])]
    run = who.run([str(KIT), "--who", *kinds], timeout_s=240)
    assert run.returncode == 0, run.stderr[-2000:]
    return {outcome["name"]: outcome for outcome in map(json.loads, run.stdout.splitlines())}


@pytest.mark.parametrize("mutation", MUTATIONS, ids=name_of)
def test_without_a_protection_its_attack_succeeds(mutation: Mutation) -> None:
    """Else the protection is dead weight, or the attack a test that cannot fail."""
    if mutation.needs == ROOT and os.geteuid() != 0:
        pytest.skip("what only root needs")
    try:
        outcome = _outcomes(mutation.needs == ORDINARY)[name_of(mutation)]
    except LookupError as problem:
        pytest.skip(str(problem))
    if "does not start here" in outcome.get("error", ""):
        pytest.skip(outcome["error"])

    assert outcome.get("error") is None
    assert outcome["harms"]


@pytest.mark.parametrize("backend", ["bwrap", "landlock"])
def test_without_the_lifeline_sandboxes_outlive_a_killed_trainer(
    backend: str, tmp_path: Path
) -> None:
    """What `test_life` shows to end would otherwise go on."""
    tmp_path.chmod(0o1777)
    trainer = subprocess.Popen(
        [sys.executable, KIT, "--hold", backend],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert trainer.stdout is not None
    pids = json.loads(trainer.stdout.readline())["pids"]
    trainer.kill()
    trainer.communicate()
    time.sleep(1.0)
    left = alive(pids)
    for pid in left:
        os.kill(pid, signal.SIGKILL)

    assert left
