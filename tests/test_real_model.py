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
FEW_TASKS = (
    *("--num-tasks", "1", "--group-size", "2", "--max-turns", "2", "--max-tokens", "32"),
    *("--eval-tasks", "0"),
)


@pytest.fixture(scope="module")
def smollm2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoint, unpacked as the example does, or the one `AGENTGYM_SMOLLM2` names."""
    if "AGENTGYM_SMOLLM2" in os.environ:
        return Path(os.environ["AGENTGYM_SMOLLM2"])
    out = tmp_path_factory.mktemp("smollm2")
    done = warm_kit.run(ROOT / "examples/smollm2.py", out, cwd=out, timeout_s=600)
    assert done.returncode == 0, done.stderr
    return out


def agentgym(*arguments: str, folder: Path) -> str:
    done = warm_kit.run("-m", "agentgym", *arguments, cwd=folder, timeout_s=900)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_three_steps_of_training_hold_the_invariants(smollm2: Path, tmp_path: Path):
    """A model of another family, vocabulary and template: sampler and trainer agree to 1e-4.

    It solves none of the tasks, so another reward makes the returns of a group differ.
    """
    (tmp_path / "variety.py").write_text(VARIETY)
    agentgym(
        *("train", "--env", "calculator", "--model", str(smollm2), "--steps", "3"),
        *("--run-dir", "run", "--plugins", "variety.py", "--rewards", "variety", *FEW_TASKS),
        folder=tmp_path,
    )

    lines = (tmp_path / "run/metrics.jsonl").read_text().splitlines()
    steps = [record for record in map(json.loads, lines) if "reward" in record]
    assert [record["step"] for record in steps] == [1, 2, 3]
    trained = [record for record in steps if record["frac_reward_zero_std"] < 1]
    assert trained
    assert all(record["sampling/logp_diff_max"] <= 1e-4 for record in trained)
    assert all(record["ratio_mean"] == pytest.approx(1.0, abs=1e-6) for record in trained)
    assert json.loads((tmp_path / "run/summary.json").read_text())["num_steps"] == 3


def test_rollout_shows_its_trajectories(smollm2: Path, tmp_path: Path):
    """Offline debugging of a real model: printed, and written line by line."""
    shown = agentgym(
        *("rollout", "--env", "calculator", "--model", str(smollm2), "--n", "2"),
        *("--max-turns", "2", "--max-tokens", "32", "--out", "out.jsonl"),
        folder=tmp_path,
    )

    outputs = list(read_jsonl(tmp_path / "out.jsonl"))
    assert len(outputs) == 2
    assert all(output.num_turns >= 1 and any(output.loss_mask) for output in outputs)
    assert "sampled" in shown
