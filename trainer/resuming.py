"""From which checkpoint a trainer goes on, and from which it cannot."""

from pathlib import Path

from agentgym.checkpoints import newest_checkpoint
from agentgym.errors import ConfigError


def checkpoint_of(given: str | bool | None, output_dir: str | None) -> str | None:
    """What Hugging Face's loop is to resume from; `True` stands for the newest complete one.

    Raises:
        ConfigError: there is none.
    """
    if given is True:
        return str(newest_checkpoint(Path(output_dir or ".")))
    return given or None


def refuse_weights_alone(checkpoint: Path) -> None:
    """Raise a `ConfigError` unless optimizer and schedule can go on where they were."""
    missing = [name for name in ("optimizer", "scheduler") if not any(checkpoint.glob(f"{name}*"))]
    if missing:
        raise ConfigError(
            f"{str(checkpoint)!r} holds no state of the {' and the '.join(missing)} (was it saved "
            "with save_only_model?), so the run would not go on as it was: give it as the model "
            "of a new run"
        )
