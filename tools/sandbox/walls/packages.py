"""Installed packages that code in a sandbox may import, each with what it requires.

Only their own top-level folders and files are shown, never the folder they are installed in: it
holds the tasks with their answers as well.
"""

import os
from collections.abc import Iterator
from functools import cache
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from typing import NamedTuple

from agentgym.errors import UsageError

_OURS = "agentgym-rl"


class Entry(NamedTuple):
    """A folder or file to be found on the import path."""

    name: str
    """Such as numpy, numpy.libs or six.py."""
    path: str
    """Where it is, links followed."""


@cache
def entries(packages: tuple[str, ...]) -> tuple[Entry, ...]:
    """What must be importable for these distributions, sorted by name.

    Raises:
        UsageError: one is not installed, or its files cannot be told; names it.
    """
    found: dict[str, Entry] = {}
    for name in _closure(packages):
        for entry in _entries(distribution(name)):
            found.setdefault(entry.name, entry)
    return tuple(found[name] for name in sorted(found))


def _closure(packages: tuple[str, ...]) -> list[str]:
    """The packages and all that they require, without extras."""
    waiting = [(name, "") for name in packages]
    known: dict[str, str] = {}
    while waiting:
        name, wanted_by = waiting.pop()
        key = name.lower().replace("_", "-").replace(".", "-")
        if key in known:
            continue
        known[key] = name
        waiting += [(required, name) for required in _requirements(name, wanted_by)]
    return list(known.values())


def _requirements(name: str, wanted_by: str) -> Iterator[str]:
    from packaging.requirements import Requirement

    because = f", which {wanted_by!r} requires," if wanted_by else ""
    try:
        found = distribution(name)
    except (PackageNotFoundError, ValueError):
        hint = f"pip install {name}, or leave it out of the sandbox's packages"
        raise UsageError(f"package {name!r}{because} is not installed: {hint}") from None
    if found.name == _OURS:
        raise UsageError(f"package {_OURS!r} holds tasks with their answers: no sandbox shows it")
    for line in found.requires or ():
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield requirement.name


def _entries(found: Distribution) -> Iterator[Entry]:
    """Top-level names of its files; programs, metadata and start-up hooks are no modules."""
    names = {file.parts[0] for file in found.files or () if len(file.parts) > 1 or file.suffix}
    modules = [name for name in names if not _is_no_module(name)]
    if not modules:
        hint = "an editable or zipped installation cannot be shown; install it as a wheel"
        raise UsageError(f"package {found.name!r} has no files of its own: {hint}")
    for name in modules:
        yield Entry(name, os.path.realpath(str(found.locate_file(name))))


def _is_no_module(name: str) -> bool:
    return name in ("..", "__pycache__") or name.endswith((".dist-info", ".egg-info", ".pth"))
