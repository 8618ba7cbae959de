"""Checkpoints of a training run: which of them a run can go on from.

A run that is killed leaves a folder without its last file, the state; one whose machine went down
may leave files that are shorter than they say they are. A run goes on from neither, nor from
weights alone, nor from the middle of a window, whose trajectories are in no checkpoint.
"""

import json
import logging
import struct
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agentgym.errors import ConfigError

logger = logging.getLogger(__name__)

WINDOWS = "windows.json"
"""In a checkpoint: the size of the run's windows; one without it was made by an earlier version."""
_PREFIX = "checkpoint-"
_STATE = "trainer_state.json"
_ARCHIVES = ("optimizer.pt", "scheduler.pt", "rng_state*.pth")
_JSON = (_STATE, WINDOWS, "engine.json", "curriculum.json", "*config.json", "*.index.json")
_WEIGHTS = ("*.safetensors", "*model*.bin", "pytorch_model_fsdp_*", "*/adapter_model.*")
_STATES = {
    "optimizer": "optimizer*",
    "scheduler": "scheduler*",
    "random generators": "rng_state*",
}
_DEEPSPEED = "global_step*"
"""Holds weights and optimizer of DeepSpeed."""


def step_of(path: Path) -> int:
    """The step in the name of a checkpoint."""
    return int(path.name.rpartition("-")[2])


def checkpoints_in(folder: Path) -> list[Path]:
    """All of them, complete or not."""
    found = folder.glob(f"{_PREFIX}*")
    return [path for path in found if path.name.removeprefix(_PREFIX).isdecimal()]


def newest_checkpoint(folder: Path, *, quiet: bool = False) -> Path:
    """The checkpoint of the highest step that a run can go on from.

    Args:
        folder: of all checkpoints.
        quiet: do not tell which are passed over, and why.

    Raises:
        ConfigError: there is none.
    """
    flaws: list[str] = []
    for path in sorted(checkpoints_in(folder), key=step_of, reverse=True):
        flaw = flaw_of(path)
        if flaw is None:
            if flaws and not quiet:
                logger.warning("resuming from %s: %s", path.name, "; ".join(flaws))
            return path
        flaws.append(f"{path.name} {flaw}")
    reasons = f": {'; '.join(flaws)}" if flaws else ""
    raise ConfigError(f"cannot resume: no complete checkpoint in {str(folder)!r}{reasons}")


def flaw_of(checkpoint: Path) -> str | None:
    """Why a run cannot go on from it, as what follows its name; `None` if it can."""
    if not has_state(checkpoint):
        return f"was not written to its end: {_STATE} is missing or cut"
    cut = [path.name for path in sorted(checkpoint.iterdir()) if _is_cut(path)]
    if cut:
        return f"is damaged: {', '.join(cut)} cut"
    lost = sorted(path.name for path in _shards(checkpoint) if not path.exists())
    if lost:
        return f"is not complete: {', '.join(lost)} missing"
    return _lack_of(checkpoint) or _place_of(checkpoint)


def has_state(checkpoint: Path) -> bool:
    """Whether the file is there that is written last."""
    return (checkpoint / _STATE).is_file() and not _is_cut(checkpoint / _STATE)


def _lack_of(checkpoint: Path) -> str | None:
    """What belongs into a checkpoint and is not there."""
    if any(checkpoint.glob(_DEEPSPEED)):
        return None
    if not any(any(checkpoint.glob(pattern)) for pattern in _WEIGHTS):
        return "holds no weights"
    missing = [what for what, files in _STATES.items() if not any(checkpoint.glob(files))]
    if not missing:
        return None
    return (
        f"holds no state of the {' and the '.join(missing)} (was it saved with save_only_model?), "
        "so the run would not go on as it was: give it as the model of a new run"
    )


def _place_of(checkpoint: Path) -> str | None:
    """Where it lies, if that is inside a window."""
    path = checkpoint / WINDOWS
    steps = _read(path).get("steps", 1) if path.exists() else 1
    if _read(checkpoint / _STATE).get("global_step", 0) % steps == 0:
        return None
    return f"lies inside a window of {steps} optimizer steps"


def _shards(checkpoint: Path) -> set[Path]:
    """Files that an index names."""
    indices = map(_read, checkpoint.glob("*.index.json"))
    return {checkpoint / name for index in indices for name in index.get("weight_map", {}).values()}


def _is_cut(path: Path) -> bool:
    """Whether a file that is read at resumption is shorter than it was."""
    try:
        if _is_any_of(path, _JSON):
            return not isinstance(_read(path), dict | list)
        if path.suffix == ".safetensors":
            return not _is_whole(path)
        return _is_any_of(path, _ARCHIVES) and not zipfile.is_zipfile(path)
    except (OSError, ValueError, LookupError):
        return True


def _is_any_of(path: Path, patterns: Sequence[str]) -> bool:
    return any(map(path.match, patterns))


def _read(path: Path) -> Any:
    return json.loads(path.read_text("utf-8"))


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
