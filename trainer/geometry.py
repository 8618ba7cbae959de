"""How many tasks a step of a checkpoint stands for, so that resuming skips none and repeats none.

What a window plays follows from its number. The same number means other tasks where windows have
another size, so a checkpoint says how large they were.
"""

import hashlib
import json
from pathlib import Path
from typing import NamedTuple

from pydantic_core import PydanticSerializationError

from agentgym.checkpoints import WINDOWS
from agentgym.errors import ConfigError
from agentgym.rollout.sampler import Tasks

_LOOKED_AT = 8


class Geometry(NamedTuple):
    """What a number of a window stands for, over all processes."""

    groups: int
    """Groups of a window."""
    steps: int
    """Optimizer steps that it feeds."""
    seed: int | None = None
    """Of the run; not known of checkpoints of earlier versions, like all that follows."""
    shuffled: bool | None = None
    """Whether tasks come in another order in every pass; `None` where they have no end."""
    tasks: int | None = None
    """In one pass; `None` where they have no end."""
    content: str | None = None
    """Of the first tasks, as a checksum."""

    def save(self, folder: Path) -> None:
        """Write it into a checkpoint."""
        (folder / WINDOWS).write_text(json.dumps(self._asdict()) + "\n", encoding="utf-8")

    def refuse_other(self, folder: Path) -> None:
        """Hold it against that of a checkpoint.

        Raises:
            ConfigError: they differ.
        """
        saved = _saved(folder)
        if saved is None:
            return
        if saved[:2] != self[:2]:
            raise ConfigError(
                f"{str(folder)!r} was made with {saved.groups} groups per window of {saved.steps} "
                f"optimizer steps, this run has {self.groups} per {self.steps}: it would skip "
                "tasks or play them again; resume with the same numbers, or begin a new run (with "
                "more or fewer processes, per_device_train_batch_size is what each of them plays)"
            )
        if saved.seed is None:
            return
        for name, was in saved._asdict().items():
            now = self._asdict()[name]
            if was != now and name != "content":
                raise ConfigError(
                    f"{str(folder)!r} was made with {name}={was}, this run has {name}={now}: it "
                    "would not go on as that one; resume with the same, or begin a new run"
                )

    def has_other_tasks(self, folder: Path) -> bool:
        """Whether a checkpoint was made with as many tasks that are others."""
        saved = _saved(folder)
        return saved is not None and saved.content not in (None, self.content)


def _saved(folder: Path) -> Geometry | None:
    """That of a checkpoint."""
    path = folder / WINDOWS
    return Geometry(**json.loads(path.read_text(encoding="utf-8"))) if path.exists() else None


def content_of(tasks: Tasks) -> str | None:
    """A checksum of the first tasks of a set that has an end, if they can be written."""
    if tasks.size is None:
        return None
    try:
        first = [tasks[index].model_dump_json() for index in range(min(tasks.size, _LOOKED_AT))]
    except PydanticSerializationError:
        return None
    return hashlib.sha256("\n".join(first).encode()).hexdigest()[:16]
