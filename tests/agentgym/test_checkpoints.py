"""What a killed run or a machine that went down leaves behind is not gone on from."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from agentgym.checkpoints import is_complete, newest_checkpoint
from agentgym.errors import ConfigError


def checkpoint(folder: Path, step: int) -> Path:
    path = folder / f"checkpoint-{step}"
    path.mkdir()
    save_file({"a": torch.ones(3), "b": torch.ones(2)}, path / "model.safetensors")
    torch.save({"state": 1}, path / "optimizer.pt")
    (path / "trainer_state.json").write_text(json.dumps({"global_step": step}))
    return path


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.pt", "trainer_state.json"])
@pytest.mark.parametrize("harm", [cut, lambda path: path.write_bytes(b"")], ids=["cut", "empty"])
def test_a_checkpoint_with_a_cut_file_is_none(
    tmp_path: Path, name: str, harm: Callable[[Path], None]
):
    """The one before it is taken."""
    checkpoint(tmp_path, 9)
    harm(checkpoint(tmp_path, 10) / name)

    assert newest_checkpoint(tmp_path).name == "checkpoint-9"


def test_a_checkpoint_without_one_of_its_shards_is_none(tmp_path: Path):
    """Such as one that is being copied."""
    path = checkpoint(tmp_path, 1)
    index = {"weight_map": {"a": "model.safetensors", "b": "model-2.safetensors"}}
    (path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert not is_complete(path)
    save_file({"b": torch.ones(2)}, path / "model-2.safetensors")

    assert is_complete(path)


def test_files_of_others_are_no_reason_to_distrust_a_checkpoint(tmp_path: Path):
    path = checkpoint(tmp_path, 3)
    (path / "notes.pt").write_bytes(b"mine")
    (tmp_path / "checkpoint-best").mkdir()

    assert is_complete(path)
    assert newest_checkpoint(tmp_path) == path


def test_no_checkpoint_at_all_is_said(tmp_path: Path):
    with pytest.raises(ConfigError, match="no complete checkpoint"):
        newest_checkpoint(tmp_path)
