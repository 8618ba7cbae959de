"""Packages to begin with: an env, or a tool, that others can install.

The templates in `files` are plain files with `$name` in them; every value is derived from the one
name, so that nothing can disagree.
"""

import keyword
import re
import sys
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from string import Template
from typing import Literal, NamedTuple

from agentgym.envs import names as env_names
from agentgym.errors import ConfigError
from agentgym.tools import TOOLS

Kind = Literal["env", "tool"]
_NAME = re.compile(r"[a-z][a-z0-9]*(?:[-_][a-z0-9]+)*")
_LONGEST = 40
_TAKEN = {"agentgym", "test", "tests"}


class File(NamedTuple):
    """A file of a new package."""

    template: str
    path: str
    """In the package's folder, `$module` included."""


FILES: dict[Kind, tuple[File, ...]] = {
    kind: (
        File(f"{kind}_pyproject.toml.tmpl", "pyproject.toml"),
        File(f"{kind}_readme.md.tmpl", "README.md"),
        File("init.py.tmpl", "$module/__init__.py"),
        File(f"{kind}.py.tmpl", f"$module/{kind}.py"),
        File(f"{kind}_test.py.tmpl", "tests/test_$module.py"),
    )
    for kind in ("env", "tool")
}


def write_package(kind: Kind, name: str, parent: Path) -> Path:
    """A new folder `parent/name` with an installable package; returns the folder.

    Raises:
        ConfigError: the name cannot be used, or the folder is there already.
    """
    values = _values(kind, name)
    folder = parent / name
    if not parent.is_dir():
        raise ConfigError(f"--dir: the folder {str(parent)!r} does not exist")
    if folder.exists() or folder.is_symlink():
        raise ConfigError(f"{str(folder)!r} exists: choose another NAME or --dir")
    source = files("agentgym.scaffold") / "files"
    texts = {
        Template(path).substitute(values): Template(
            (source / template).read_text(encoding="utf-8")
        ).substitute(values)
        for template, path in FILES[kind]
    }
    for path, text in texts.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    return folder


def _values(kind: Kind, name: str) -> dict[str, str]:
    """Everything that is derived from the name."""
    if not _NAME.fullmatch(name) or len(name) > _LONGEST:
        raise ConfigError(
            f"NAME {name!r} must be at most {_LONGEST} lower-case letters, digits and single "
            "'-' or '_', beginning with a letter, such as coin-boxes"
        )
    module = name.replace("-", "_")
    _refuse_taken(kind, module, name)
    camel = "".join(part.capitalize() for part in module.split("_"))
    return {
        "name": name,
        "module": module,
        "camel": camel,
        "title": module.replace("_", " ").capitalize(),
    }


def _refuse_taken(kind: Kind, module: str, name: str) -> None:
    if keyword.iskeyword(module) or module in sys.stdlib_module_names | _TAKEN:
        raise ConfigError(f"NAME {name!r} is a word of Python's own: choose another")
    registered = env_names() if kind == "env" else TOOLS.names()
    if module in registered:
        raise ConfigError(f"NAME {name!r}: this {kind} is registered already: choose another")
    if find_spec(module) is not None:
        raise ConfigError(f"NAME {name!r}: a module {module!r} is installed: choose another")
