"""Checkpoints of a training run: which of them a run can go on from.

A run that is killed leaves a folder without its last file, the state; one whose machine went down
may leave files that are shorter than they say they are. Neither is a checkpoint.
"""

import json
import struct
import zipfile
from pathlib import Path

from agentgym.errors import ConfigError

_PREFIX = "checkpoint-"
_STATE = "trainer_state.json"
_ARCHIVES = ("optimizer.pt", "scheduler.pt")


def step_of(path: Path) -> int:
    """The step in the name of a checkpoint or of a step's trajectories."""
    return int(path.name.partition(".")[0].rpartition("-")[2])


def checkpoints_in(folder: Path) -> list[Path]:
    """All of them, complete or not."""
    found = folder.glob(f"{_PREFIX}*")
    return [path for path in found if path.name.removeprefix(_PREFIX).isdigit()]


def newest_checkpoint(folder: Path) -> Path:
    """The complete checkpoint of the highest step.

    Raises:
        ConfigError: there is none.
    """
    complete = [path for path in checkpoints_in(folder) if is_complete(path)]
    if not complete:
        raise ConfigError(f"cannot resume: no complete checkpoint in {str(folder)!r}")
    return max(complete, key=step_of)


def is_complete(checkpoint: Path) -> bool:
    """Whether it has its state and all shards, and neither weights nor optimizer are cut."""
    try:
        archives = [checkpoint / name for name in _ARCHIVES if (checkpoint / name).exists()]
        tensors = all(map(_is_whole, checkpoint.glob("*.safetensors")))
        whole = tensors and all(map(zipfile.is_zipfile, archives))
        return has_state(checkpoint) and whole and all(p.exists() for p in _shards(checkpoint))
    except (OSError, ValueError, LookupError):
        return False


def has_state(checkpoint: Path) -> bool:
    """Whether the file is there that is written last."""
    try:
        json.loads((checkpoint / _STATE).read_text("utf-8"))
    except (OSError, ValueError):
        return False
    return True


def _shards(checkpoint: Path) -> set[Path]:
    """Files that an index names."""
    indices = [json.loads(p.read_text("utf-8")) for p in checkpoint.glob("*.index.json")]
    return {checkpoint / name for index in indices for name in index["weight_map"].values()}


def _is_whole(path: Path) -> bool:
    """Whether a safetensors file is as long as its header says."""
    with path.open("rb") as file:
        start = file.read(8)
        if len(start) < 8:
            return False
        (length,) = struct.unpack("<Q", start)
        size = path.stat().st_size
        if 8 + length > size:
            return False
        header = json.loads(file.read(length))
    ends = (entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__")
    return bool(8 + length + max(ends, default=0) == size)
