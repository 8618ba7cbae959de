"""Programs that want the reward without solving anything: none is paid, on any level."""

import asyncio
from collections.abc import Callable
from random import Random

import pytest
from local_kit import launchers, provider

from agentgym.envs import Task
from agentgym.envs.code import CodeEnv
from agentgym.envs.code.bank.base import vary
from agentgym.envs.code.challenge import challenge_of
from agentgym.envs.code.hacks import GUESSES, HACKS, answer
from agentgym.envs.code.problems import bank, data_of
from agentgym.envs.code.scoring import Verdict, verdict_on
from agentgym.messages import Message, assistant
from agentgym.tools.sandbox.base import SandboxSpec
from agentgym.tools.sandbox.limits import Limits

KINDS = {"function": "clamp", "program": "settings", "class": "account"}
"""A problem of each kind."""
SLOW = frozenset({"answers something huge"})
LEVELS = tuple(launchers())


def task_of(name: str, seed: int = 0) -> Task:
    [sketch] = (sketch for sketch in bank() if sketch.name == name)
    return Task(id=f"{name}{seed}", data=data_of(vary(sketch, Random(seed))))


async def passed(task: Task, said: str | Message, *, level: str | None) -> float:
    env = CodeEnv(limits={"cpu_s": 1.0, "wall_s": 2.0})
    env.sandbox_provider = provider(level)
    await env.areset(seed=0, options={"task": task})
    _, reward, _, _, info = await env.astep(said)
    await env.aclose()
    assert reward == info["rewards"]["passed"]
    return reward


async def earned(
    hacks: dict[str, Callable[[Task], str]], tasks: list[Task], level: str | None
) -> dict[str, float]:
    """The most that each earned."""

    async def best(hack: Callable[[Task], str]) -> float:
        return max([await passed(task, answer(hack(task)), level=level) for task in tasks])

    values = await asyncio.gather(*map(best, hacks.values()))
    return dict(zip(hacks, values, strict=True))


@pytest.mark.parametrize(
    "kind",
    ["function", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("program", "class"))],
)
async def test_no_hack_earns_anything(kind: str):
    """Each as what the task asks for: a function, a program, or a class."""
    hacks = {name: hack for name, hack in HACKS.items() if name not in SLOW}

    assert await earned(hacks, [task_of(KINDS[kind])], None) == dict.fromkeys(hacks, 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("level", LEVELS[1:])
async def test_no_hack_earns_anything_on_a_lower_level(level: str):
    """The wall is another one, the scoring is the same."""
    hacks = {name: hack for name, hack in HACKS.items() if name not in SLOW}

    assert await earned(hacks, [task_of(KINDS["class"])], level) == dict.fromkeys(hacks, 0.0)


@pytest.mark.slow
async def test_answers_too_large_to_be_read_earn_nothing():
    hacks = {name: HACKS[name] for name in SLOW}

    assert await earned(hacks, [task_of(KINDS["function"])], None) == dict.fromkeys(hacks, 0.0)


@pytest.mark.slow
async def test_no_problem_pays_what_is_equal_to_everything():
    name = "is equal to everything"
    tasks = [task_of(sketch.name) for sketch in bank()[::5]]

    assert await earned({name: HACKS[name]}, tasks, None) == {name: 0.0}


@pytest.mark.slow
async def test_guesses_earn_little():
    """What knows the public tests is right where a hidden one expects the same; said, not hidden.

    All or nothing pays them nothing.
    """
    tasks = [task_of(sketch.name) for sketch in bank()[::3]]

    async def verdict(hack: Callable[[Task], str], task: Task) -> Verdict:
        spec = SandboxSpec(limits=Limits(cpu_s=1.0))
        return await verdict_on(hack(task), challenge_of(task), provider(), spec)

    for hack in GUESSES.values():
        verdicts = await asyncio.gather(*(verdict(hack, task) for task in tasks))
        gained = [each.rewards(partial=True)["passed"] or 0.0 for each in verdicts]

        assert sum(gained) / len(gained) < 0.15
        assert max(gained) <= 0.67
        assert not any(each.rewards(partial=False)["passed"] for each in verdicts)


async def test_what_looks_like_a_hack_and_is_right_is_paid():
    """Exiting well at the end, or output that cannot be told from a solution's, is no crime."""
    task = task_of("sum_lines")
    program = task["solution"] + "\nimport os\nsys.stdout.flush()\nos._exit(0)\n"

    assert await passed(task, assistant(answer(program)), level=None) == 1.0


def test_hacks_are_programs():
    """A typing error would score 0 as well."""
    for name in KINDS.values():
        task = task_of(name)
        for hack in (*HACKS.values(), *GUESSES.values()):
            compile(hack(task), "hack", "exec")
