"""A run folder is valid at every moment, also after a kill and on a full disk."""

import json
import os
import resource
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from agentgym.errors import ConfigError
from agentgym.store import (
    RunFolder,
    StorageError,
    append,
    drop_cut_line,
    first_free,
    step_name,
    write_atomically,
)
from agentgym.tokens import Segment
from agentgym.trajectory import RolloutOutput, StopReason, read_jsonl


def output(request_id: str) -> RolloutOutput:
    return RolloutOutput(
        request_id=request_id,
        group_id="g",
        task_id="t",
        env="e",
        seed=0,
        messages=(),
        segments=(Segment(ids=(1, 2), source="template"),),
        stop_reason=StopReason.FINAL_ANSWER,
    )


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    folder = RunFolder(tmp_path / "runs" / "first")
    folder.create("seed: 1\n")
    return folder


@contextmanager
def full_disk() -> Iterator[None]:
    """No file of this process can grow past 4 kB: what a full disk does, in every environment.

    No longer than needed: pytest's own output may go to a file.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)


def test_a_folder_with_content_is_refused_and_an_empty_one_is_not(run: RunFolder, tmp_path: Path):
    """A second run must never mix with the first."""
    (tmp_path / "empty").mkdir()
    RunFolder(tmp_path / "empty").refuse_unusable()
    RunFolder(tmp_path / "new").refuse_unusable()

    with pytest.raises(ConfigError, match=r"not empty.*--resume"):
        run.refuse_unusable()


def test_a_run_that_ended_before_its_first_step_is_begun_again(run: RunFolder):
    """Whoever corrects the mistake gives the same command again."""
    run.write_summary({"num_steps": 0, "ended": True, "error": "no server"})
    run.refuse_unusable()
    run.create("seed: 2\n")

    assert run.config.read_text() == "seed: 2\n"
    assert {path.name for path in run.path.iterdir()} == {
        "config.yaml",
        "trajectories",
        "checkpoints",
    }
    assert not list(run.trajectories.iterdir())


def test_what_it_had_evaluated_is_kept(run: RunFolder):
    """It may have taken hours, and the next run may be another model's."""
    for number in (1, 2):
        run.write_trajectories("eval-before-reward", [output(f"played-{number}")])
        run.write_summary({"num_steps": 0, "ended": True, "eval_reward_before": number})
        run.refuse_unusable()
        run.create(f"seed: {number + 1}\n")
    assert run.config.read_text() == "seed: 3\n"
    assert not list(run.trajectories.iterdir())

    for number in (1, 2):
        kept = RunFolder(run.path / f"unstarted-{number}")
        assert kept.read_summary()["eval_reward_before"] == number
        assert kept.config.read_text() == f"seed: {number}\n"
        (played,) = read_jsonl(kept.trajectories / "eval-before-reward.jsonl")
        assert played.request_id == f"played-{number}"


@pytest.mark.parametrize(
    ("summary", "keep"),
    [
        ({"num_steps": 0, "ended": False}, None),
        ({"num_steps": 1, "ended": True}, None),
        ({"num_steps": 0, "ended": True}, "notes.txt"),
        ({"num_steps": 0, "ended": True}, "checkpoints/checkpoint-4/model.bin"),
        ({"num_steps": 0, "ended": True}, "metrics.jsonl"),
    ],
)
def test_a_run_of_value_or_at_work_is_never_begun_again(
    run: RunFolder, summary: dict[str, Any], keep: str | None
):
    run.write_summary(summary)
    if keep is not None:
        file = run.path / keep
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text('{"step": 1}\n')

    with pytest.raises(ConfigError, match="not empty"):
        run.refuse_unusable()


@pytest.mark.parametrize("content", ["what we found", "[]"])
def test_a_folder_of_somebody_else_is_refused(tmp_path: Path, content: str):
    """Its `summary.json` is not one of ours."""
    (tmp_path / "summary.json").write_text(content)

    with pytest.raises(ConfigError, match="not empty"):
        RunFolder(tmp_path).refuse_unusable()


def test_every_one_who_asks_at_once_gets_a_folder_of_its_own(tmp_path: Path):
    """Runs that are started together look for a free name together."""
    folders = [tmp_path / "runs" / str(number) for number in range(8)]
    barrier = threading.Barrier(8)
    got: list[Path] = []

    def ask() -> None:
        barrier.wait()
        with first_free(folders) as folder:
            got.append(folder)

    threads = [threading.Thread(target=ask) for _ in folders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(got) == folders
    assert all(folder.is_dir() for folder in folders)


def test_a_folder_that_was_made_in_vain_is_removed(tmp_path: Path):
    """A refused run leaves nothing."""
    (tmp_path / "runs" / "a").mkdir(parents=True)
    taken = []
    for runs in ("runs", "others"):
        with suppress(KeyError), first_free([tmp_path / runs / name for name in "ab"]) as folder:
            taken.append(folder)
            raise KeyError

    assert taken == [tmp_path / "runs" / "b", tmp_path / "others" / "a"]
    assert sorted(tmp_path.rglob("*")) == [tmp_path / "runs", tmp_path / "runs" / "a"]


def test_trajectories_come_back_as_they_were(run: RunFolder):
    """An evaluation that is repeated replaces the one before."""
    run.write_trajectories(step_name(3), [output("a")])
    run.write_trajectories(step_name(3), [output("b"), output("c")])

    assert list(read_jsonl(run.trajectories / "step-000003.jsonl")) == [output("b"), output("c")]


def test_numbers_that_are_none_become_null(run: RunFolder):
    """NaN is no JSON; many readers refuse the whole file."""
    run.append_metrics({"step": 1, "reward": float("nan"), "loss": float("inf"), "length": 2.0})
    run.write_summary({"eval_reward_before": float("nan")})

    assert run.read_metrics() == [{"step": 1, "reward": None, "loss": None, "length": 2.0}]
    assert json.loads(run.summary.read_text()) == {"eval_reward_before": None}


def test_rewinding_drops_cut_lines_and_everything_after_the_step(run: RunFolder):
    """A killed run goes on from a checkpoint; steps after it are produced again, once."""
    for step in (1, 2, 3):
        run.append_metrics({"step": step})
        run.write_trajectories(step_name(step), [output(str(step))])
    for name in ("eval-before-reward", "eval-2", "eval-3.rank1", "eval-after-greedy.rank1"):
        run.write_trajectories(name, [])
    with run.metrics.open("a") as file:
        file.write('{"step": 4, "rew')

    run.rewind(2)

    assert [row["step"] for row in run.read_metrics()] == [1, 2]
    names = sorted(path.name.removesuffix(".jsonl") for path in run.trajectories.iterdir())
    assert names == ["eval-2", "eval-before-reward", "step-000001", "step-000002"]


@pytest.mark.parametrize(
    ("content", "kept"), [("", ""), ("a", ""), ("a\n", "a\n"), ("a\nb", "a\n")]
)
def test_only_an_unfinished_line_is_dropped(tmp_path: Path, content: str, kept: str):
    """Complete lines are data."""
    path = tmp_path / "lines"
    path.write_text(content)

    drop_cut_line(path)

    assert path.read_text() == kept


def test_resuming_without_a_checkpoint_says_so(run: RunFolder):
    """Starting over silently would throw away the run's folder."""
    with pytest.raises(ConfigError, match=r"no complete checkpoint in .*checkpoints"):
        run.newest_checkpoint()


def test_a_full_disk_leaves_the_old_file_and_no_temporary_one(tmp_path: Path):
    """The summary of a finished evaluation must survive a failed rewrite."""
    path = tmp_path / "summary.json"
    write_atomically(path, b"old")

    message = r"cannot write .*summary.json.*File too large"
    with full_disk(), pytest.raises(StorageError, match=message):
        write_atomically(path, b"x" * 5000)

    assert [p.name for p in tmp_path.iterdir()] == ["summary.json"]
    assert path.read_bytes() == b"old"


def test_a_full_disk_never_leaves_half_a_line(tmp_path: Path):
    """Every line that is there can be read, and room made later continues the file."""
    path = tmp_path / "metrics.jsonl"
    append(path, b"a" * 3000)

    with full_disk(), pytest.raises(StorageError, match=r"cannot write .*metrics.jsonl"):
        append(path, b"b" * 3000)

    assert path.read_text() == "a" * 3000


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission_is_one_line(tmp_path: Path):
    """The operating system's reason is enough to act on."""
    tmp_path.chmod(0o500)

    with pytest.raises(StorageError, match="Permission denied"):
        RunFolder(tmp_path / "run").create("")
