"""Imports point down only, and nothing heavy is loaded before it is needed.

Read from the source, function bodies included, so that a late import cannot hide a wrong one.
"""

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = {"agentgym": "agentgym"} | {f: f"agentgym.{f}" for f in ("envs", "tools", "trainer")}

LAYERS: tuple[set[str], ...] = (
    {"errors"},
    {
        "addresses",
        "checkpoints",
        "config",
        "constraint",
        "deadlines",
        "flags",
        "jsonable",
        "messages",
        "pids",
        "plugins",
        "registry",
        "threads",
        "tokens",
        "trajectory",
    },
    {"tools"},
    {"envs"},
    {"engines", "rendering", "rewards"},
    {
        "checking",
        "display",
        "evaluation",
        "plotting",
        "progress",
        "rollout",
        "scaffold",
        "serving",
        "store",
        "testing",
    },
    {"trainer"},
    {"__main__", "cli", "commands", "viewer"},
)
"""Parts of agentgym, the lowest first; a layer may use itself and those below."""

HEAVY = {"accelerate", "datasets", "peft", "torch", "transformers", "trl", "vllm"}
HEAVY_PACKAGES = (
    "agentgym.trainer",
    "agentgym.engines.transformers",
    *(f"agentgym.engines.vllm.{name}" for name in ("backends", "extension", "loading", "staged")),
)
"""May load heavy libraries when they are imported, and are imported late by what is below."""
HEAVY_INSIDE_FUNCTIONS = (
    "agentgym.rendering.compiled",
    "agentgym.cli",
    "agentgym.commands",
    "agentgym.engines",
    "agentgym.testing",
)


class Import(NamedTuple):
    """One import statement."""

    module: str
    """That holds the statement."""
    target: str
    is_late: bool
    """Inside a function, or for type checkers only."""
    where: str


def _modules() -> Iterator[tuple[str, Path]]:
    for folder, package in FOLDERS.items():
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT / folder).with_suffix("").parts
            if folder == "agentgym" and parts[0] in FOLDERS:
                continue
            yield ".".join([package, *(part for part in parts if part != "__init__")]), path


def _imports_of(module: str, path: Path) -> Iterator[Import]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    late = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or _is_for_typing(node)
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        for target in _targets(node):
            where = f"{path.relative_to(ROOT)}:{node.lineno}"  # type: ignore[attr-defined]
            yield Import(module, target, id(node) in late, where)


def _is_for_typing(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def _targets(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if not isinstance(node, ast.ImportFrom):
        return []
    assert node.level == 0, f"relative import of {node.module}: write agentgym...."
    if node.module == "agentgym":
        return [f"agentgym.{alias.name}" for alias in node.names]
    return [str(node.module)]


MODULES = dict(_modules())


@cache
def _imports() -> tuple[Import, ...]:
    return tuple(f for module, path in MODULES.items() for f in _imports_of(module, path))


def _layer(module: str) -> int:
    part = module.split(".")[1]
    return next(number for number, layer in enumerate(LAYERS) if part in layer)


def _is_in(module: str, packages: tuple[str, ...]) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)


TRAINER_LAYER = _layer("agentgym.trainer")
LIGHT = [
    module
    for module in MODULES
    if module != "agentgym"
    and _layer(module) < TRAINER_LAYER
    and not _is_in(module, HEAVY_PACKAGES)
]
"""What must not load a heavy library when it is imported."""


def test_every_module_has_a_layer() -> None:
    """A new module says where it belongs by its entry in LAYERS."""
    known = set().union(*LAYERS)
    parts = {module.split(".")[1] for module in MODULES if module != "agentgym"}

    assert len(MODULES) > 40
    assert parts <= known


def test_imports_point_down() -> None:
    """Else the layers are words."""
    upward = [
        found
        for found in _imports()
        if found.target.startswith("agentgym.")
        and found.module != "agentgym"
        and _layer(found.target) > _layer(found.module)
    ]

    assert not upward


def test_the_package_itself_imports_nothing() -> None:
    """`import agentgym` costs nothing and has no side effects."""
    assert not [found for found in _imports() if found.module == "agentgym"]


def test_errors_need_the_standard_library_only() -> None:
    """Everything can raise them."""
    own = [found for found in _imports() if found.module == "agentgym.errors"]

    assert own
    assert all(found.target.split(".")[0] in sys.stdlib_module_names for found in own)


def test_heavy_libraries_are_imported_where_they_are_used() -> None:
    """At the top only in the trainer and in the engine over it; elsewhere late, or not at all."""
    misplaced = [
        found
        for found in _imports()
        if found.target.split(".")[0] in HEAVY
        and not _is_in(found.module, HEAVY_PACKAGES)
        and not (found.is_late and _is_in(found.module, HEAVY_INSIDE_FUNCTIONS))
    ]

    assert not misplaced


def test_packages_that_load_heavy_libraries_are_imported_late() -> None:
    """Else whoever imports their user loads torch."""
    early = [
        found
        for found in _imports()
        if _is_in(found.target, HEAVY_PACKAGES) and found.module in LIGHT and not found.is_late
    ]

    assert not early


def _python(code: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], cwd=cwd, capture_output=True, text=True, timeout=60
    )


@pytest.mark.parametrize(
    "modules",
    ["agentgym.cli", ", ".join(LIGHT)],
    ids=["the command line", "everything below the trainer"],
)
def test_what_is_light_stays_light(modules: str) -> None:
    """Whatever third parties do: no heavy library, no output, no thread below the trainer."""
    code = (
        f"import {modules}\n"
        "import sys, threading\n"
        f"print(sorted({HEAVY!r} & set(sys.modules)), threading.active_count())"
    )
    done = _python(code)

    assert done.stdout == "[] 1\n", done.stderr
    assert done.stderr == ""


@pytest.mark.parametrize("folder", ["envs", "tools", "trainer"])
def test_the_top_folders_are_no_packages_of_their_own(folder: str) -> None:
    """Else every class would exist twice."""
    done = _python(f"import {folder}")

    assert done.returncode == 1
    assert f"import agentgym.{folder}, not {folder}" in done.stderr
