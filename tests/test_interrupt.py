"""A training run that does not come to its end: by Ctrl-C, by a kill, by a full disk."""

import json
import os
import shlex
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import warm_kit
from warm_kit import Program

from agentgym.trajectory import read_jsonl

pytestmark = pytest.mark.slow

AGENTGYM = ("-m", "agentgym")
SMALL = ("--eval-tasks", "2", "--num-tasks", "2", "--group-size", "4")
TRAIN = (*AGENTGYM, "train", "--run-dir", "run", *SMALL)
PATIENCE_S = 180
BREAKS_ON_LOG = """\
from agentgym.progress import LineProgress

def step(self, report):
    open("nowhere")

LineProgress.step = step
"""


def start(
    folder: Path,
    *flags: str,
    command: tuple[str, ...] = TRAIN,
    limit_bytes: int | None = None,
) -> Program:
    """A training run in a process group of its own."""
    return warm_kit.start(*command, *flags, cwd=folder, limit_bytes=limit_bytes)


def finish(process: Program) -> tuple[int, str, str]:
    """Exit code, output and errors; nothing of the process group may be left."""
    out, err = process.communicate(PATIENCE_S)
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)
    assert process.returncode is not None
    return process.returncode, out, err


def wait_for(condition: Callable[[], bool], process: Program) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert process.poll() is None, process.communicate(PATIENCE_S)
        assert time.monotonic() < end, "the run does not get there"
        time.sleep(0.05)


def metrics(folder: Path) -> list[dict[str, Any]]:
    text = (folder / "metrics.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def summary(folder: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    return loaded


def num_lines(path: Path) -> int:
    return path.read_text().count("\n") if path.exists() else 0


def test_an_interrupted_run_goes_on_with_the_line_it_prints_as_if_nothing_had_happened(
    tmp_path: Path,
):
    """Ctrl-C is how most long runs end.

    The line is copied as it stands; the run's own config has the name that was chosen for it.
    """
    cut, whole = (tmp_path / name / "runs" / "calculator-1" for name in ("cut", "whole"))
    for folder in (tmp_path / "cut", tmp_path / "whole"):
        folder.mkdir()
    command = (*AGENTGYM, "train", *SMALL, "--steps", "6", "--seed", "3", "--save-steps", "6")
    process = start(tmp_path / "cut", command=command)
    wait_for(lambda: num_lines(cut / "metrics.jsonl") >= 1, process)
    os.killpg(process.pid, signal.SIGINT)
    code, out, err = finish(process)
    program, *words = shlex.split(out.partition("go on with: ")[2])

    assert (code, err, program) == (130, "", "agentgym")
    made = summary(cut)["num_steps"]
    assert summary(cut)["interrupted"] is True
    assert 1 <= made < 6
    assert (cut / f"checkpoints/checkpoint-{made}/trainer_state.json").exists()
    assert (cut / "reward.png").read_bytes().startswith(b"\x89PNG")
    assert len(metrics(cut)) == made
    assert all(list(read_jsonl(path)) for path in (cut / "trajectories").iterdir())

    assert finish(start(tmp_path / "cut", command=(*AGENTGYM, *words)))[::2] == (0, "")
    assert finish(start(tmp_path / "whole", command=command))[0] == 0
    figures = ("step", "reward", "loss", "grad_norm", "learning_rate", "completions/mean_length")
    resumed, straight = (
        [[row.get(name) for name in figures] for row in metrics(folder)] for folder in (cut, whole)
    )
    assert [row[0] for row in resumed] == list(range(1, 7))
    assert resumed == straight
    for key in ("eval_reward_before", "eval_reward_after", "eval_greedy_after", "num_steps"):
        assert summary(cut)[key] == summary(whole)[key]
    assert summary(cut)["interrupted"] is False


def test_runs_that_are_started_together_have_folders_of_their_own(tmp_path: Path):
    """Both see that the same name is free."""
    flags = ("--steps", "1", "--num-tasks", "1", "--group-size", "2", "--eval-tasks", "0")
    both = [start(tmp_path, *flags, command=(*AGENTGYM, "train")) for _ in range(2)]

    assert [finish(process)[0] for process in both] == [0, 0]
    for name in ("calculator-1", "calculator-2"):
        assert num_lines(tmp_path / "runs" / name / "metrics.jsonl") == 1
        assert f"name: {name}\n" in (tmp_path / "runs" / name / "config.yaml").read_text()


def test_a_killed_run_leaves_whole_lines_and_goes_on(tmp_path: Path):
    """Machines lose power; what was written before counts."""
    process = start(tmp_path, "--steps", "6", "--save-steps", "1")
    state = tmp_path / "run/checkpoints/checkpoint-1/trainer_state.json"
    wait_for(lambda: state.exists() and num_lines(tmp_path / "run/metrics.jsonl") >= 2, process)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(PATIENCE_S)

    assert all(list(read_jsonl(path)) for path in (tmp_path / "run/trajectories").glob("*.jsonl"))
    assert finish(start(tmp_path, "--resume"))[0] == 0
    assert [row["step"] for row in metrics(tmp_path / "run")] == [1, 2, 3, 4, 5, 6]
    assert summary(tmp_path / "run")["finished"] is True


def test_a_checkpoint_that_cannot_be_written_ends_the_run_with_one_line(tmp_path: Path):
    """A limit on the size of a file stands for the full disk: the write fails half way."""
    code, out, err = finish(
        start(tmp_path, "--steps", "2", "--save-steps", "1", limit_bytes=1_000_000)
    )

    assert code == 2
    assert err.startswith("agentgym: cannot write to 'run/checkpoints': ")
    assert err.count("\n") == 1
    assert err.endswith("; no step was kept: begin a new run\n")
    assert "step 1/2" in out
    assert [row["step"] for row in metrics(tmp_path / "run")] == [1]
    assert summary(tmp_path / "run")["num_steps"] == 1
    assert "cannot write" in summary(tmp_path / "run")["error"]
    assert not list((tmp_path / "run/checkpoints").glob("checkpoint-*"))


def test_a_reader_that_is_gone_ends_the_run_quietly(tmp_path: Path):
    """`| head` has read enough; that is no full disk."""
    process = start(tmp_path, "--steps", "50", "--save-steps", "50")
    assert any(line.startswith("step 1/50") for line in process.stdout)
    process.stdout.close()
    code, _, err = finish(process)

    assert (code, err) == (1, "")
    assert summary(tmp_path / "run")["num_steps"] >= 1
    assert "error" not in summary(tmp_path / "run")


def test_an_error_of_the_operating_system_elsewhere_is_no_full_disk(tmp_path: Path):
    """It would send people to look at the disk when a reward function lacks a file."""
    (tmp_path / "plugin.py").write_text(BREAKS_ON_LOG)
    code, _, err = finish(start(tmp_path, "--steps", "1", "--plugins", "plugin.py"))

    assert code == 1
    assert "cannot write" not in err
    assert err.endswith("FileNotFoundError: [Errno 2] No such file or directory: 'nowhere'\n")


def test_a_second_interrupt_ends_the_run_at_once(tmp_path: Path):
    """A step of a large model may take many minutes."""
    process = start(tmp_path, "--steps", "50", "--num-tasks", "64")
    wait_for(lambda: (tmp_path / "run" / "summary.json").exists(), process)
    time.sleep(1)
    os.killpg(process.pid, signal.SIGINT)
    time.sleep(0.2)
    os.killpg(process.pid, signal.SIGINT)
    began = time.monotonic()
    code, out, err = finish(process)

    assert (code, err) == (130, "")
    assert "no step was kept: begin a new run" in out
    assert time.monotonic() - began < 60
    assert summary(tmp_path / "run")["interrupted"] is True
