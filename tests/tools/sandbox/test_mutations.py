"""Each protection matters: without it the attack that it is there for succeeds."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from mutation_list import ANYONE, MUTATIONS, ORDINARY, ROOT, name_of
from processes_kit import alive
from who_kit import HERE, USER, Who

KIT = Path(__file__).parents[2] / "kits" / "mutation_kit.py"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="sandboxes of Linux"),
]


def _outcomes(backend: str, who: Who, kinds: Sequence[str]) -> dict[str, dict[str, Any]]:
    """How the attacks went, by name of the mutation."""
    run = who.run([str(KIT), "--backend", backend, "--who", *kinds], timeout_s=240)
    assert run.returncode == 0, run.stderr[-2000:]
    return {outcome["name"]: outcome for outcome in map(json.loads, run.stdout.splitlines())}


@pytest.mark.parametrize(
    ("backend", "ordinary"), [("bwrap", False), ("landlock", False), ("landlock", True)]
)
def test_without_a_protection_its_attack_succeeds(backend: str, ordinary: bool) -> None:
    """Else the protection is dead weight, or the attack a test that cannot fail."""
    is_root = os.geteuid() == 0
    kinds = [ORDINARY] if ordinary else [ANYONE, *([ROOT] if is_root else [])]
    try:
        outcomes = _outcomes(backend, USER if ordinary and is_root else HERE, kinds)
    except LookupError as problem:
        pytest.skip(str(problem))
    if any("does not start here" in outcome.get("error", "") for outcome in outcomes.values()):
        pytest.skip(f"{backend} does not start here")
    tried = {name_of(m) for m in MUTATIONS if m.backend == backend and m.needs in kinds}

    assert outcomes.keys() == tried != set()
    assert [each for each in outcomes.values() if not each.get("harms")] == []


def test_every_protection_is_tried() -> None:
    assert {(m.backend, m.needs == ORDINARY) for m in MUTATIONS} == {
        ("bwrap", False),
        ("landlock", False),
        ("landlock", True),
    }


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
        with suppress(ProcessLookupError):  # the first one takes others with it
            os.kill(pid, signal.SIGKILL)

    assert left
