"""Programs that want the reward without solving anything: none is paid, on any level."""

import asyncio
from collections.abc import Callable
from random import Random

import pytest
from local_kit import launchers, provider

from agentgym.envs import Task
from agentgym.envs.code import CodeEnv
from agentgym.envs.code.bank.base import vary
from agentgym.envs.code.hacks import GUESSES, HACKS, answer
from agentgym.envs.code.problems import bank, data_of
from agentgym.messages import Message, assistant

KINDS = {"function": "clamp", "program": "settings", "class": "account"}
"""A problem of each kind."""
SLOW = frozenset({"answers something huge"})
LEVELS = tuple(launchers())


def task_of(name: str, seed: int = 0) -> Task:
    [sketch] = (sketch for sketch in bank() if sketch.name == name)
    return Task(id=f"{name}{seed}", data=data_of(vary(sketch, Random(seed))))


async def passed(task: Task, said: str | Message, *, level: str | None, **arguments: bool) -> float:
    env = CodeEnv(**arguments)
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


@pytest.mark.parametrize("kind", KINDS)
async def test_no_hack_earns_anything(kind: str):
    """Each as what the task asks for: a function, a program, or a class."""
    hacks = {name: hack for name, hack in HACKS.items() if name not in SLOW}

    assert await earned(hacks, [task_of(KINDS[kind])], None) == dict.fromkeys(hacks, 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind", KINDS)
async def test_no_hack_earns_anything_on_any_level(kind: str, level: str):
    """The wall is another one, the scoring is the same."""
    assert await earned(dict(HACKS), [task_of(KINDS[kind])], level) == dict.fromkeys(HACKS, 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["is equal to everything", "exits", "reads its caller"])
async def test_no_hack_earns_anything_on_any_problem(name: str):
    tasks = [task_of(sketch.name) for sketch in bank()]

    assert await earned({name: HACKS[name]}, tasks, None) == {name: 0.0}


@pytest.mark.slow
async def test_guesses_earn_little():
    """What knows the public tests is right where a hidden one expects the same; said, not hidden.

    All or nothing pays them nothing.
    """
    tasks = [task_of(sketch.name) for sketch in bank()]
    for hack in GUESSES.values():
        gained = await asyncio.gather(
            *(passed(task, answer(hack(task)), level=None) for task in tasks)
        )
        whole = await asyncio.gather(
            *(passed(task, answer(hack(task)), level=None, partial=False) for task in tasks)
        )

        assert sum(gained) / len(gained) < 0.15
        assert max(gained) <= 0.67
        assert not any(whole)


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
