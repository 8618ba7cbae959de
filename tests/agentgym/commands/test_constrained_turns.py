"""Turns of a form in whole runs of the command line, with the engine over the model itself."""

import json
import math
from pathlib import Path

import pytest
from forms_kit import check_record, constrained_fraction, forms

from agentgym.cli import main
from agentgym.trajectory import read_jsonl

__all__ = ["forms"]
SMALL = ["--max-tokens", "48", "--group-size", "4"]
RUN = [*SMALL, "--steps", "2", "--num-tasks", "2", "--eval-tasks", "0"]


def test_a_rollout_keeps_to_the_forms(
    forms: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.jsonl"
    assert main(["rollout", *forms, *SMALL, "--n", "4", "--out", str(out)]) == 0

    check_record(out, num=4)
    shown = capsys.readouterr().out
    assert "forced    3 │" in shown
    assert "sampled by the policy under a constraint (mask 0)" in shown


@pytest.mark.slow
def test_a_run_trains_what_is_free_and_counts_what_is_not(
    forms: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    assert main(["train", *forms, *RUN, "--run-dir", str(run)]) == 0

    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert len(rows) == 2
    for row in rows:
        outputs = check_record(run / f"trajectories/step-{row['step']:06}.jsonl", num=8)
        expected = constrained_fraction(outputs)
        assert row["completions/constrained_fraction"] == pytest.approx(expected)
        assert 0 < expected < 1
        assert row["turns/mean"] == 3
        assert row["skipped_update"] == 0
        assert row["grad_norm"] > 0
    assert "nothing was learned" not in capsys.readouterr().out


@pytest.mark.slow
def test_a_run_without_a_free_turn_takes_no_step_and_says_so(
    forms: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """By the scheduler's word; and no figure is NaN."""
    run = tmp_path / "run"
    assert main(["train", *forms, *RUN, "--scheduler", "strict", "--run-dir", str(run)]) == 0

    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert len(rows) == 2
    for row in rows:
        check_record(run / f"trajectories/step-{row['step']:06}.jsonl", num=8, strict=True)
        assert (row["completions/constrained_fraction"], row["skipped_update"]) == (1.0, 1.0)
        assert row["duplicate_fraction"] < 1
        assert row["completions/mean_length"] > 3
        assert all(math.isfinite(value) for value in row.values())
    told = [record.message for record in caplog.records]
    assert told.count("every turn was constrained, so there was nothing to train: no step") == 1
    assert "nothing was learned: every turn was constrained" in capsys.readouterr().out


def test_a_form_that_cannot_be_enforced_fails_its_trajectories(
    forms: list[str], tmp_path: Path
) -> None:
    """Exit code 1: all of them."""
    out = tmp_path / "out.jsonl"
    wrong = ["--env-args", '{"first": {"regex": "(?=a)b"}}']

    assert main(["rollout", *forms, *wrong, "--n", "2", "--out", str(out)]) == 1
    for output in read_jsonl(out):
        assert output.stop_reason == "env_error"
        assert "cannot be enforced" in str(output.error)
        assert "\n" not in str(output.error)
