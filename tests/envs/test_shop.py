"""The shop as an env: its tasks, its oracle, episodes side by side and one after another."""

import asyncio
import json
from collections import Counter
from random import Random
from typing import Any

import gymnasium
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings
from hypothesis import strategies as st
from shop_kit import (
    EVERY_LEVEL,
    EVERYTHING,
    NOTHING,
    aplay,
    does_everything,
    few,
    make,
    play,
    random_clerk,
)

from agentgym import envs
from agentgym.envs import Task
from agentgym.envs.levels import SPLITS
from agentgym.envs.shop import ShopEnv
from agentgym.envs.shop.rules import policy_for
from agentgym.envs.shop.tasks import KINDS
from agentgym.errors import ConfigError
from agentgym.messages import assistant

indices = st.integers(0, 2**31 - 1)
levels = st.sampled_from(EVERY_LEVEL)
splits = st.sampled_from(SPLITS)


@given(levels, indices, splits)
@settings(max_examples=80, deadline=None)
def test_the_oracle_earns_everything(level: int, index: int, split: str):
    """Every conversation can be settled with what the clerk gets to see, within ten turns."""
    env = make(level)
    steps = play(env, env.tasks(split)[index], env.oracle)

    assert steps[-1][-1] == EVERYTHING
    assert steps[-1][1] == pytest.approx(1.0)
    assert len(steps) <= 10


@given(levels, indices, splits)
@few
def test_the_same_index_is_the_same_task(level: int, index: int, split: str):
    task = make(level).tasks(split)[index]

    assert task == make(level).tasks(split)[index]
    assert task == Task.model_validate_json(task.model_dump_json())


@pytest.mark.parametrize("level", EVERY_LEVEL)
def test_no_conversation_is_in_both_splits(level: int):
    env = make(level)
    train, held_out = (
        {json.dumps(env.tasks(split)[i]["turns"]) for i in range(100)} for split in SPLITS
    )

    assert len(held_out) > 95
    assert not train & held_out


def test_all_requests_and_reasons_occur():
    """Half of the first requests are refused, and no reason is left out."""
    tasks = make().tasks()
    turns = [tasks[index]["turns"] for index in range(400)]
    reasons = Counter((turn["request"][0], turn["reason"]) for pair in turns for turn in pair)
    refused = sum(pair[0]["reason"] is not None for pair in turns)

    assert {kind for kind, _ in reasons} == set(KINDS)
    assert {reason for _, reason in reasons if reason} == {
        word.strip(".,;:") for word in policy_for(KINDS).split() if "_" in word
    } - {"too_late'"}
    assert 0.4 < refused / 400 < 0.75
    assert max(reasons.values()) < 120


@given(indices, indices, st.integers(0, 2**32))
@few
def test_interleaved_episodes_do_not_meet(first: int, second: int, seed: int):
    """Each has its own copy of the task's database, which itself never changes."""
    tasks = [make().tasks()[index] for index in (first, second)]
    untouched = [task.model_dump_json() for task in tasks]
    alone = [play(make(), task, random_clerk(Random(seed))) for task in tasks]

    async def together() -> list[list[tuple[Any, ...]]]:
        playing = [aplay(make(), task, random_clerk(Random(seed))) for task in tasks]
        return list(await asyncio.gather(*playing))

    assert asyncio.run(together()) == alone
    assert [task.model_dump_json() for task in tasks] == untouched


def test_one_env_plays_one_episode_after_another():
    """Nothing of the last one is left, whatever was done in it."""
    env = make(4)
    for index in range(6):
        task = env.tasks()[index]
        assert play(env, task, does_everything)[-1][-1] == NOTHING
        assert play(env, task, env.oracle)[-1][-1] == EVERYTHING


def test_an_episode_that_is_cut_earns_nothing_yet():
    async def cut() -> dict[str, float | None]:
        env = make(1)
        await env.areset(options={"task": env.tasks()[0]})
        await env.astep(assistant("", ("get_order", {"order_id": "W1"})))
        return await env.acut()

    assert asyncio.run(cut()) == NOTHING


@pytest.mark.filterwarnings("ignore:.*alternative render modes")
def test_gymnasium_accepts_it():
    env = gymnasium.make(envs.spec("shop").id)
    check_env(env.unwrapped)
    env.close()


@pytest.mark.parametrize("chosen", [(), (0,), (1, 9)])
def test_unknown_levels_and_splits_are_refused(chosen: tuple[int, ...]):
    with pytest.raises(ConfigError, match="levels"):
        ShopEnv(chosen)
    with pytest.raises(ConfigError, match="split"):
        make().tasks("test")
