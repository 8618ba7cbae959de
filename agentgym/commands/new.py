"""`agentgym new`: a package to begin with, that passes its own tests and `agentgym check`."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from agentgym.commands import Command
from agentgym.config import Config
from agentgym.scaffold import write_package


class NewConfig(Config):
    """Begin a package with an environment or a tool of your own."""

    arguments = ("kind", "name")

    kind: Literal["env", "tool"]
    """What to begin: env or tool."""
    name: str = Field(min_length=1)
    """Of the package and of what is in it, such as coin-boxes."""
    dir: Path = Path(".")
    """Folder in which the package's folder is made."""


def new(settings: NewConfig) -> None:
    """Write the package and say what to do with it."""
    folder = write_package(settings.kind, settings.name, settings.dir)
    flag = " --tool" if settings.kind == "tool" else ""
    print(f"made {folder}: read its README.md, then")
    print(f"  pip install -e {folder}")
    print(f"  agentgym check {settings.name}{flag}")
    print(f"  pytest {folder}")


COMMAND = Command(NewConfig, new)
