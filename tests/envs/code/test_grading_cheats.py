"""A program that wants the reward without solving the task gets none, however it is graded."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from cheat_kit import CHEATS, HONEST, LIMITS, MODES, WRONG, Cheat
from sandbox_kit import open_provider

from agentgym.envs.code.grading import Graded, grade
from agentgym.tools.sandbox.base import SandboxProvider, SandboxSpec

FAST = {
    "os._exit(0)",
    "sys.exit(0)",
    "a sentinel is printed",
    "a nonce from the command line",
    "an object equal to all",
    "constants in the code of callers",
    "everything in memory",
    "what compares is patched",
    "forged results by a thread",
    "nan",
    "its parent is killed",
    "every exception at once",
}
"""Tried every time; the others only with the slow tests."""
REACHING = {
    "all its descriptors are closed",
    "a crash",
    "a hook for every import",
    "a huge forged frame",
    "an endless iterator",
    "at the end",
    "expectations in the command lines of all",
    "files all around",
    "forged results by a child",
    "inputs and answers of other tests",
    "killed",
    "no descriptors for the runner",
    "out of memory",
    "sleeps",
    "spins",
    "stdout is another",
    "stopped",
}
"""Those that meet a wall or a limit, beside `FAST`; what a value is worth is judged outside."""
NAMES = [pytest.param(n, marks=[] if n in FAST else [pytest.mark.slow]) for n in CHEATS]

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lower() -> AsyncIterator[SandboxProvider]:
    async with open_provider("landlock") as provider:
        yield provider


async def graded(provider: SandboxProvider, cheat: Cheat) -> Graded:
    return await grade(
        provider, cheat.program, MODES.values(), spec=SandboxSpec(limits=cheat.limits)
    )


def passed(result: Graded) -> list[str]:
    return [mode for mode, passed in zip(MODES, result.passed, strict=True) if passed]


async def test_the_cheats_that_are_tried_every_time_exist():
    """A renamed one would be tried no more."""
    assert CHEATS.keys() >= FAST | REACHING


async def test_an_honest_program_passes_every_mode(provider: SandboxProvider):
    """Else a score of 0 for cheats would say nothing."""
    result = await graded(provider, HONEST)

    assert passed(result) == list(MODES)
    assert result.fraction == 1.0
    assert result.tamper_resistance == "partial"  # one of them cannot be rewritten


@pytest.mark.parametrize("name", WRONG)
async def test_a_wrong_program_passes_none(provider: SandboxProvider, name: str):
    """Each is wrong in all of them."""
    assert passed(await graded(provider, WRONG[name])) == []


@pytest.mark.parametrize("name", NAMES)
async def test_a_cheat_passes_none(provider: SandboxProvider, name: str):
    """Nor does it get away as a failure of the machine, which would raise."""
    result = await graded(provider, CHEATS[name])

    assert passed(result) == []
    assert len(result.results) == len(MODES)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(FAST | REACHING))
async def test_a_cheat_passes_none_behind_the_lower_wall(lower: SandboxProvider, name: str):
    """Whether a program reaches what grades it does not depend on how high the wall is."""
    assert passed(await graded(lower, CHEATS[name])) == []


async def test_a_grader_is_as_good_as_new_after_every_cheat(provider: SandboxProvider):
    """One trajectory's crash is not the next one's."""
    assert (await graded(provider, HONEST._replace(limits=LIMITS))).all_passed
