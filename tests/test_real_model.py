"""A real pretrained model through the same commands: SmolLM2-135M-Instruct."""

import json
import os
from pathlib import Path

import pytest
import warm_kit

from agentgym.trajectory import read_jsonl

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[1]
VARIETY = """
from agentgym.registry import REWARDS


@REWARDS.register("variety")
def variety(output):
    ids = [token for token, own in zip(output.token_ids, output.loss_mask) if own]
    return len(set(ids)) / len(ids)
"""
SHORT = ("--env", "calculator", "--max-turns", "2", "--max-tokens", "24")
READING_ONCE = """
# Transformers reads the file three times, and looks its names up anew for every module.
import runpy
import sys
from functools import cache

import gguf

gguf.GGUFReader = cache(gguf.GGUFReader)
gguf.get_tensor_name_map = cache(gguf.get_tensor_name_map)
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
ONE_AFTER_THE_OTHER = """
import json
import sys

from agentgym.cli import main

sys.exit(any([main(arguments) for arguments in json.loads(sys.argv[1])]))
"""


@pytest.fixture
def smollm2(tmp_path: Path) -> Path:
    """The checkpoint, unpacked as the example does, or the one `AGENTGYM_SMOLLM2` names."""
    if "AGENTGYM_SMOLLM2" in os.environ:
        return Path(os.environ["AGENTGYM_SMOLLM2"])
    out = tmp_path / "smollm2"
    script = ROOT / "examples/smollm2.py"
    done = warm_kit.run("-c", READING_ONCE, script, out, cwd=tmp_path, timeout_s=600)
    assert done.returncode == 0, done.stderr
    return out


def test_it_is_played_and_trained(smollm2: Path, tmp_path: Path):
    """A model of another family, vocabulary and template; both commands in one process.

    It solves none of the tasks, so another reward makes the returns of a group differ.
    """
    (tmp_path / "variety.py").write_text(VARIETY)
    shared = (*SHORT, "--model", str(smollm2))
    commands = [
        ("rollout", *shared, "--n", "2", "--out", "out.jsonl"),
        (
            *("train", *shared, "--num-tasks", "1", "--group-size", "2", "--eval-tasks", "0"),
            *("--steps", "2", "--save-steps", "2", "--run-dir", "run"),
            *("--plugins", "variety.py", "--rewards", "variety"),
        ),
    ]
    done = warm_kit.run(
        "-c", ONE_AFTER_THE_OTHER, json.dumps(commands), cwd=tmp_path, timeout_s=900
    )

    assert done.returncode == 0, done.stderr
    assert "sampled" in done.stdout
    trajectories_are_written(tmp_path / "out.jsonl")
    invariants_hold(tmp_path / "run")


def trajectories_are_written(path: Path) -> None:
    """Offline debugging of a real model: printed, and written line by line."""
    outputs = list(read_jsonl(path))
    assert len(outputs) == 2
    assert all(output.num_turns >= 1 and any(output.loss_mask) for output in outputs)


def invariants_hold(run: Path) -> None:
    """Sampler and trainer agree to 1e-4."""
    steps = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [record["step"] for record in steps] == [1, 2]
    trained = [record for record in steps if record["frac_reward_zero_std"] < 1]
    assert trained
    assert all(record["sampling/logp_diff_max"] <= 1e-4 for record in trained)
    assert all(record["ratio_mean"] == pytest.approx(1.0, abs=1e-6) for record in trained)
    assert json.loads((run / "summary.json").read_text())["num_steps"] == 2
