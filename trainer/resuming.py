"""From which checkpoint a trainer goes on, from which it cannot, and what is ours in it."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from agentgym.checkpoints import flaw_of, newest_checkpoint
from agentgym.errors import ConfigError
from agentgym.trainer.geometry import Geometry, content_of

if TYPE_CHECKING:
    from agentgym.trainer.grpo import AgentGRPOTrainer

logger = logging.getLogger(__name__)


def checkpoint_of(given: str | bool | None, output_dir: str | None) -> str | None:
    """What Hugging Face's loop is to resume from; `True` stands for the newest complete one.

    Raises:
        ConfigError: there is none.
    """
    if given is True:
        return str(newest_checkpoint(Path(output_dir or ".")))
    return given or None


def refuse_flawed(checkpoint: Path) -> None:
    """Raise a `ConfigError` unless a run can go on from it as it was."""
    flaw = flaw_of(checkpoint)
    if flaw is not None:
        raise ConfigError(f"cannot resume: {str(checkpoint)!r} {flaw}")


class OwnState:
    """What a checkpoint holds beside Hugging Face's files.

    Args:
        trainer: whose run it is.
    """

    def __init__(self, trainer: "AgentGRPOTrainer") -> None:
        self._trainer = trainer

    def save(self, checkpoint: Path) -> None:
        """Write it into a checkpoint, whose folder is made."""
        trainer = self._trainer
        checkpoint.mkdir(parents=True, exist_ok=True)
        self._geometry.save(checkpoint)
        trainer.engine_sync.save(checkpoint)
        if trainer.curriculum is not None:
            trainer.curriculum.save(checkpoint)

    def load(self, checkpoint: Path) -> None:
        """Take it over; the rest of a checkpoint is loaded by Hugging Face's loop.

        Raises:
            ConfigError: this run would not go on as that one.
        """
        trainer = self._trainer
        refuse_flawed(checkpoint)
        self._geometry.refuse_other(checkpoint)
        if trainer.ranks.index == 0 and self._geometry.has_other_tasks(checkpoint):
            logger.warning(
                "the tasks are others than those that %r was made with: the run goes on with them "
                "at the place where it was",
                str(checkpoint),
            )
        trainer.engine_sync.load(checkpoint)
        if trainer.curriculum is not None:
            trainer.curriculum.load(checkpoint)

    @property
    def _geometry(self) -> Geometry:
        args, sampler = self._trainer.args, self._trainer.sampler
        num_tasks = sampler.tasks.size
        return Geometry(
            args.groups_per_rank * self._trainer.ranks.count,
            args.steps_per_window,
            seed=args.seed,
            shuffled=None if num_tasks is None else sampler.shuffle,
            tasks=num_tasks,
            content=content_of(sampler.tasks),
        )
