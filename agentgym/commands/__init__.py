"""What `agentgym` can do: each command is a config class and a function."""

from collections.abc import Callable
from typing import Any, NamedTuple

from agentgym.config import Config


class Command(NamedTuple):
    """One word of the command line."""

    config: type[Config]
    """Its settings; the docstring is its help."""
    run: Callable[[Any], int | None]
    """Called with an instance of `config`; returns the exit code, `None` = 0."""
