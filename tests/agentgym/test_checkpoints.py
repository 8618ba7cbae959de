"""What a killed run or a machine that went down leaves behind is not gone on from."""

import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from agentgym.checkpoints import flaw_of, newest_checkpoint
from agentgym.errors import ConfigError


def checkpoint(folder: Path, step: int) -> Path:
    path = folder / f"checkpoint-{step}"
    path.mkdir()
    save_file({"a": torch.ones(3), "b": torch.ones(2)}, path / "model.safetensors")
    for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth"):
        torch.save({"state": 1}, path / name)
    (path / "windows.json").write_text('{"steps": 1}\n')
    (path / "config.json").write_text("{}\n")
    (path / "trainer_state.json").write_text(json.dumps({"global_step": step}))
    return path


FILES = (
    "model.safetensors",
    "optimizer.pt",
    "scheduler.pt",
    "rng_state.pth",
    "windows.json",
    "config.json",
    "trainer_state.json",
)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-2])


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("harm", [cut, lambda path: path.write_bytes(b"")], ids=["cut", "empty"])
def test_a_checkpoint_with_a_cut_file_is_none(
    tmp_path: Path, name: str, harm: Callable[[Path], None]
):
    """The one before it is taken; by whom it is read does not matter."""
    checkpoint(tmp_path, 9)
    harm(checkpoint(tmp_path, 10) / name)

    assert newest_checkpoint(tmp_path).name == "checkpoint-9"


def test_what_is_passed_over_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    """Else a run would lose steps without a word; 10 comes after 9."""
    checkpoint(tmp_path, 9)
    cut(checkpoint(tmp_path, 10) / "rng_state.pth")
    (checkpoint(tmp_path, 11) / "model.safetensors").unlink()
    (checkpoint(tmp_path, 12) / "optimizer.pt").unlink()
    (tmp_path / "checkpoint-13").write_text("a file")
    (checkpoint(tmp_path, 14) / "rng_state.pth").unlink()
    with caplog.at_level(logging.WARNING):
        assert newest_checkpoint(tmp_path).name == "checkpoint-9"
    shutil.rmtree(tmp_path / "checkpoint-9")

    for said in (
        "resuming from checkpoint-9: checkpoint-14 holds no state of the random generators",
        "checkpoint-13 was not written to its end",
        "checkpoint-12 holds no state of the optimizer",
        "checkpoint-11 holds no weights",
        "checkpoint-10 is damaged: rng_state.pth cut",
    ):
        assert said in caplog.text
    with pytest.raises(ConfigError, match=r"no complete checkpoint.*; checkpoint-11 holds no w"):
        newest_checkpoint(tmp_path)


def test_the_middle_of_a_window_is_no_place_to_go_on_from(tmp_path: Path):
    """Its trajectories are in no checkpoint."""
    for step in (2, 3):
        (checkpoint(tmp_path, step) / "windows.json").write_text('{"groups": 1, "steps": 2}')

    assert newest_checkpoint(tmp_path).name == "checkpoint-2"
    assert flaw_of(tmp_path / "checkpoint-3") == "lies inside a window of 2 optimizer steps"


def test_a_checkpoint_without_one_of_its_shards_is_none(tmp_path: Path):
    """Such as one that is being copied."""
    path = checkpoint(tmp_path, 1)
    index = {"weight_map": {"a": "model.safetensors", "b": "model-2.safetensors"}}
    (path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert flaw_of(path) == "is not complete: model-2.safetensors missing"
    save_file({"b": torch.ones(2)}, path / "model-2.safetensors")

    assert flaw_of(path) is None


def test_files_of_others_are_no_reason_to_distrust_a_checkpoint(tmp_path: Path):
    path = checkpoint(tmp_path, 3)
    (path / "notes.pt").write_bytes(b"mine")
    (path / "notes.json").write_text("0.5\n0.7\n")
    (tmp_path / "checkpoint-best").mkdir()

    assert flaw_of(path) is None
    assert newest_checkpoint(tmp_path) == path


def test_no_checkpoint_at_all_is_said(tmp_path: Path):
    with pytest.raises(ConfigError, match="no complete checkpoint"):
        newest_checkpoint(tmp_path)
