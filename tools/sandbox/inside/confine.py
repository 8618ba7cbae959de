"""Walls a child puts around itself, where the launcher could put none around the runner."""

from typing import Any


class Confinement:
    """What was prepared once, in the runner, for all children."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config

    def enter(self) -> None:
        """Close this process in, for good; the last thing before foreign code."""
