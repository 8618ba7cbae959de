"""Grades a folder of files that an agent wrote by tests that it may have written over.

The tests are the data set's; a file of the agent in their place, or a reward that it wrote
somewhere, is never read. Its other files are laid out anew for every question that a test asks.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from random import Random

from agentgym.envs.code.grading.folding import as_source
from agentgym.envs.code.grading.grader import Graded, Grading
from agentgym.envs.code.grading.planning import AnyTest, limits_for, planned, spec_for
from agentgym.envs.code.grading.tests import AssertTest
from agentgym.errors import ConfigError
from agentgym.tools.sandbox.base import SandboxProvider, SandboxSpec
from agentgym.tools.sandbox.limits import Limits

_SHADOWS = frozenset({"sitecustomize.py", "usercustomize.py", "conftest.py"})
_NO_TESTS = frozenset({"__init__.py", "conftest.py"})
_TEST_LIBRARIES = frozenset({"pytest", "hypothesis", "numpy", "pandas", "scipy"})


async def grade_workspace(
    provider: SandboxProvider,
    files: Mapping[str, str | bytes],
    tests: Mapping[str, str],
    *,
    limits: Limits | None = None,
    packages: Sequence[str] = (),
    seed: int | None = None,
) -> Graded:
    """Grade files by test files, one result per test file.

    Args:
        provider: where sandboxes come from.
        files: what the agent left, by path from the root of the workspace.
        tests: Python test code by path, from the source of truth.
        limits: of every run.
        packages: distributions that files and tests may import.
        seed: of the order of the tests.

    Raises:
        ConfigError: there are no tests, or some that cannot be run.
        SandboxError: the infrastructure failed; the workspace has no score.
    """
    kept = _kept(files, tests)
    records: list[AnyTest] = [AssertTest(source=source) for source in _sources(tests)]
    plans = await planned(records, modules=_modules(kept, tests, packages))
    grading = Grading(
        provider=provider,
        spec=spec_for(SandboxSpec(limits=limits or Limits(), packages=tuple(packages))),
        limits=limits_for(records, limits),
        random=Random(seed),
    )
    return await grading.run(_LAY_OUT.format(files=as_source(kept)), plans)


_LAY_OUT = """
def lay_out(files):
    import os
    for path, data in files.items():
        if os.path.dirname(path):
            os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(data)
lay_out({files})
del lay_out
"""


def _sources(tests: Mapping[str, str]) -> list[str]:
    """Of the test files that hold tests."""
    return [text for path, text in tests.items() if PurePosixPath(path).name not in _NO_TESTS]


def _modules(
    kept: Mapping[str, bytes], tests: Mapping[str, str], packages: Sequence[str]
) -> list[str]:
    """What tests may import from the agent: nothing that has the name of a library or of tests."""
    found, reserved = (
        {PurePosixPath(path).parts[0].removesuffix(".py") for path in paths}
        for paths in (kept, tests)
    )
    libraries = {name.replace("-", "_") for name in packages} | _TEST_LIBRARIES
    return sorted(found - reserved - libraries - sys.stdlib_module_names)


def _kept(files: Mapping[str, str | bytes], tests: Mapping[str, str]) -> dict[str, bytes]:
    """The agent's files, without those in the place of tests or of the interpreter's own."""
    reserved = {PurePosixPath(path) for path in tests}
    kept = {}
    for name, data in files.items():
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or not path.parts:
            raise ConfigError(f"file {name!r} lies outside the workspace")
        if path not in reserved and path.name not in _SHADOWS:
            kept[str(path)] = data.encode() if isinstance(data, str) else data
    return kept
