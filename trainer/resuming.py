"""From which checkpoint a trainer goes on, and from which it cannot."""

from pathlib import Path

from agentgym.checkpoints import flaw_of, newest_checkpoint
from agentgym.errors import ConfigError


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
