"""The code env under the commands: every part of the system between a task and a number."""

import json
from pathlib import Path
from typing import Any

import pytest
import warm_kit

pytestmark = pytest.mark.slow
HACK = "```python\nimport os\nos._exit(0)\n```"


def agentgym(*arguments: str, folder: Path) -> str:
    """Output of a command that must succeed."""
    done = warm_kit.run("-m", "agentgym", *arguments, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def rollout(folder: Path, *arguments: str) -> list[dict[str, Any]]:
    out = folder / "out.jsonl"
    words = ("rollout", "--env", "code", "--show", "0", "--out", str(out), *arguments)
    agentgym(*words, folder=folder)
    return [json.loads(line) for line in out.read_text().splitlines()]


def test_the_oracle_earns_everything_and_the_reward_function_agrees(tmp_path: Path):
    played = rollout(
        tmp_path,
        *("--env-args", '{"levels": [1, 2, 3, 4, 5]}', "--max-tokens", "2048"),
        *("--policy", "oracle", "--n", "10", "--rewards", "code"),
    )

    assert [each["rewards"]["passed"] for each in played] == [1.0] * 10
    assert [each["rewards"]["code"] for each in played] == [1.0] * 10


def test_a_hack_earns_nothing(tmp_path: Path):
    script = tmp_path / "hack.json"
    script.write_text(json.dumps([HACK]))
    played = rollout(tmp_path, "--policy", f"scripted:{script}", "--n", "6")

    assert [each["return"] for each in played] == [0.0] * 6
    assert {each["stop_reason"] for each in played} == {"final_answer"}


def test_training_runs_to_its_end_with_the_parts_of_the_reward_in_the_metrics(tmp_path: Path):
    """The embedded policy knows no Python: it learns nothing, and nothing breaks."""
    folder = tmp_path / "run"
    small = ("--steps", "1", "--num-tasks", "2", "--group-size", "2", "--eval-tasks", "1")
    agentgym("train", "--env", "code", *small, "--run-dir", str(folder), folder=tmp_path)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]

    assert [line["step"] for line in lines] == [1]
    for name in ("passed", "public", "runs", "format"):
        assert all(0.0 <= line[f"rewards/{name}/mean"] <= 1.0 for line in lines)
    assert all(line["failed"] == 0.0 for line in lines)
