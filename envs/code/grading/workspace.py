"""Grades a folder of files that an agent wrote by tests that it may have written over.

The tests are the data set's; a file of the agent in their place, or a reward that it wrote
somewhere, is never read. Its other files go into a fresh sandbox, where tests import them.
"""

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from random import Random

from agentgym.envs.code.grading.grader import Graded, Grading
from agentgym.envs.code.grading.planning import AnyTest, limits_for, plan
from agentgym.envs.code.grading.tests import AssertTest
from agentgym.errors import ConfigError
from agentgym.tools.sandbox.base import SandboxProvider, SandboxSpec
from agentgym.tools.sandbox.limits import Limits

_SHADOWS = frozenset({"sitecustomize.py", "usercustomize.py", "conftest.py"})


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
    modules = sorted({PurePosixPath(path).parts[0].removesuffix(".py") for path in kept})
    records: list[AnyTest] = [AssertTest(source=source) for source in tests.values()]
    plans = plan(records, modules=modules)
    grading = Grading(
        provider=provider,
        spec=SandboxSpec(limits=limits or Limits(), packages=tuple(packages)),
        limits=limits_for(records, limits),
        random=Random(seed),
        files=kept,
    )
    return await grading.run("", plans)


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
