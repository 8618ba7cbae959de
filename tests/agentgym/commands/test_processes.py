"""`torchrun -m agentgym train`: two processes, one run."""

import json
from pathlib import Path

import pytest
import ranks_kit

pytestmark = pytest.mark.slow

SLOW_MAIN = """\
import os, time
from agentgym.store import RunFolder

if os.environ["RANK"] == "0":
    write_summary = RunFolder.write_summary

    def write_late(self, summary):
        time.sleep(3)
        write_summary(self, summary)

    RunFolder.write_summary = write_late
"""
FAILING = """\
from agentgym.errors import ConfigError
from agentgym.registry import REWARDS

def fail(output):
    raise ConfigError("this reward is for another env")

REWARDS.register("failing", fail)
"""


def train(folder: Path, *flags: str) -> ranks_kit.Ended:
    """One step of two processes; the first one is slow to write its summary."""
    (folder / "slow_main.py").write_text(SLOW_MAIN)
    size = ("--steps", "1", "--num-tasks", "2", "--group-size", "2", "--eval-tasks", "0")
    command = ("-m", "agentgym", "train", *size, "--plugins", "slow_main.py", *flags)
    return ranks_kit.torchrun(command, cwd=folder)


def test_the_outcome_is_told_once_by_the_process_that_knows_it(tmp_path: Path):
    """The others may be done before the summary is written."""
    process = train(tmp_path).in_peace()

    assert "Traceback" not in process.errors
    assert [said.count("run folder: runs/calculator-1\n") for said in process.said] == [1, 0]
    assert [folder.name for folder in (tmp_path / "runs").iterdir()] == ["calculator-1"]


def test_a_run_that_fails_everywhere_writes_down_what_it_knows(tmp_path: Path):
    """A launcher kills the main process when another one has ended."""
    (tmp_path / "failing.py").write_text(FAILING)
    process = train(tmp_path, "--plugins", "failing.py", "--rewards", "failing", "--run-dir", "run")

    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert process.code != 0
    assert "another env" in summary["error"]
    assert (tmp_path / "run" / "reward.png").exists()
