"""The runner's code, compiled once and sent into every sandbox."""

import ast
import importlib.resources
import marshal
import sys
from collections.abc import Callable, Sequence
from functools import cache
from graphlib import TopologicalSorter

from agentgym.tools.sandbox.inside import boot

_PACKAGE = "agentgym.tools.sandbox.inside"
_FILES = "<agentgym sandbox>"
_SIZE = 8


def runner_command(control: int) -> Callable[[str], Sequence[str]]:
    """What makes the command line of the runner from the path of an interpreter."""
    tag = sys.implementation.cache_tag
    return lambda python: boot.command(python, control, cache_tag=tag)


@cache
def runner_code() -> bytes:
    """What `boot` reads first: the modules, each after those it imports."""
    parts = _PACKAGE.split(".")
    packages = [(".".join(parts[: n + 1]), None) for n in range(len(parts))]
    sources = _sources()
    needs = {name: _imports(source) & sources.keys() for name, source in sources.items()}
    modules = [
        (f"{_PACKAGE}.{name}", compile(sources[name], f"{_FILES}/{name}.py", "exec"))
        for name in TopologicalSorter(needs).static_order()
    ]
    data = marshal.dumps([*packages, *modules])
    return len(data).to_bytes(_SIZE, "big") + data


def _sources() -> dict[str, str]:
    folder = importlib.resources.files(_PACKAGE)
    files = {f.name.removesuffix(".py"): f for f in folder.iterdir() if f.name.endswith(".py")}
    return {n: f.read_text("utf-8") for n, f in files.items() if n not in ("__init__", "boot")}


def _imports(source: str) -> set[str]:
    """Names of the modules beside it that a module imports."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module == _PACKAGE:
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith(f"{_PACKAGE}."):
            found.add((node.module or "").rpartition(".")[2])
    return found
