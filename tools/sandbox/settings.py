"""Which sandbox a run wants."""

from dataclasses import dataclass
from typing import Literal

from agentgym.tools.sandbox.base import Level

Backend = Literal["auto", "bwrap", "landlock", "e2b", "unsafe-subprocess"]
UNSAFE = "unsafe-subprocess"


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxSettings:
    """Of a process: all its trajectories share them."""

    backend: Backend = "auto"
    """`auto`: the best of this machine; never `e2b`, for which code leaves it, nor the unsafe."""
    min_level: int | None = None
    """Refuse to run below; 2 if left out, or 1 for the unsafe one, which is asked for by name."""
    slots: int | None = None
    """Programs that run at once; as many as there are cores if left out."""
    warm: int = 2
    """Sandboxes kept ready."""

    @property
    def floor(self) -> Level:
        if self.min_level is not None:
            return Level(self.min_level)
        return Level.NONE if self.backend == UNSAFE else Level.LANDLOCK
