"""The contract of every env: both sides, order, plain values, limits."""

import asyncio
import math
import random
import sqlite3
import threading
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import given
from hypothesis import strategies as st

from agentgym.envs import Env, Task, TaskSet
from agentgym.envs.base import weighted_sum
from agentgym.errors import ConfigError, EnvError, EpisodeOverError
from agentgym.messages import Message, assistant, user


class Counter(Env):
    """Sync side: pays 1 for every step and ends on "stop"."""

    def __init__(self) -> None:
        self.closes = 0
        self.threads: set[int] = set()

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.threads.add(threading.get_ident())
        self.secret = int(self.np_random.integers(1000))
        return f"{self.pick_task(options).id} {self.secret}", {}

    def step(self, action: Message) -> Any:
        self.threads.add(threading.get_ident())
        return action.content, 1.0, action.content == "stop", False, {}

    def close(self) -> None:
        self.threads.add(threading.get_ident())
        self.closes += 1


class AsyncCounter(Env):
    """The same, async side."""

    def __init__(self) -> None:
        self.closes = 0

    async def areset(self, *, seed: int | None = None, options: Any = None) -> Any:
        await asyncio.sleep(0)
        self.secret = int(self.np_random.integers(1000))
        return f"{self.pick_task(options).id} {self.secret}", {}

    async def astep(self, action: Message) -> Any:
        await asyncio.sleep(0)
        return action.content, 1.0, action.content == "stop", False, {}

    async def aclose(self) -> None:
        self.closes += 1


EITHER = pytest.mark.parametrize("kind", [Counter, AsyncCounter])


@EITHER
def test_the_sync_side(kind: type[Env]) -> None:
    """Gymnasium's users need not know that there is another side."""
    with kind() as env:
        observation, info = env.reset(seed=3, options={"task": Task(id="t")})
        assert observation[0].content.startswith("t ")
        assert info == {}
        assert env.step("go") == ([user("go")], 1.0, False, False, {})
        assert env.step(assistant("stop")) == ([user("stop")], 1.0, True, False, {})
    env.close()
    assert env.closes == 1


@EITHER
async def test_the_async_side(kind: type[Env]) -> None:
    """The loop's side gives the same as the other."""
    env = kind()
    observation, _ = await env.areset(seed=3, options={"task": Task(id="t")})
    sync_observation, _ = kind().reset(seed=3, options={"task": Task(id="t")})

    assert observation == sync_observation
    assert await env.astep("stop") == ([user("stop")], 1.0, True, False, {})
    await env.aclose()
    await env.aclose()
    assert env.closes == 1


async def test_a_sync_env_stays_in_one_thread_off_the_loop() -> None:
    """What reset opens, such as a database, may be bound to its thread."""

    class Database(Counter):
        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            self.connection = sqlite3.connect(":memory:")
            return super().reset(seed=seed, options=options)

        def close(self) -> None:
            self.connection.close()
            super().close()

    env = Database()
    await env.areset(seed=0)
    await env.astep("go")
    await env.aclose()

    assert len(env.threads) == 1
    assert env.threads != {threading.get_ident()}


class Doubling(AsyncCounter):
    """Overrides the other side than its base defines."""

    def step(self, action: Message) -> Any:
        observation, reward, *rest = super().step(action)
        return observation, 2 * reward, *rest


class Tripling(Counter):
    async def astep(self, action: Message) -> Any:
        observation, reward, *rest = await super().astep(action)
        return observation, 3 * reward, *rest


@pytest.mark.parametrize(("kind", "factor"), [(Doubling, 2), (Tripling, 3)])
async def test_an_override_of_either_side_counts_for_both(kind: type[Env], factor: int) -> None:
    """Else training would play another env than the author tested."""
    env = kind()
    env.reset(seed=0)
    assert env.step("go")[1] == factor
    await env.areset(seed=0)
    assert (await env.astep("go"))[1] == factor
    await env.aclose()


@pytest.mark.parametrize("missing", ["reset", "step"])
def test_a_class_without_either_side_is_refused(missing: str) -> None:
    """At its definition, not in the first episode."""
    members = {name: None for name in ("reset", "step") if name != missing}
    body = {name: lambda self, *args, **kwargs: None for name in members}

    with pytest.raises(TypeError, match=f"Half must define {missing} or a{missing}"):
        type("Half", (Env,), body)


@EITHER
async def test_steps_out_of_order_are_refused(kind: type[Env]) -> None:
    """And an episode never pays twice."""
    env = kind()
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step("go")
    with pytest.raises(gymnasium.error.ResetNeeded):
        await env.astep("go")
    env.reset(seed=0)
    env.step("stop")
    for error in (EpisodeOverError, gymnasium.error.ResetNeeded):
        with pytest.raises(error, match="over"):
            env.step("stop")
        with pytest.raises(error, match="over"):
            await env.astep("stop")
    env.reset(seed=0)
    assert env.step("go")[1] == 1.0


class Returns(Env):
    """Returns what it is told to."""

    result: Any = ("on", 0.0, False, False, {})
    opening: Any = ("begin", {})

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return self.opening

    def step(self, action: Message) -> Any:
        return self.result


def _started(*result: Any) -> Returns:
    env = Returns()
    env.result = result
    env.reset(seed=0)
    return env


@pytest.mark.parametrize("reward", [1, 1.0, True, np.float32(1), np.int64(1), np.array(1.0)])
@pytest.mark.parametrize("no", [False, np.bool_(False)])
def test_values_are_plain(reward: Any, no: Any) -> None:
    """What reaches records and JSON are Python's own types."""
    _, paid, terminated, truncated, info = _started("on", reward, no, no, {}).step("go")

    assert (type(paid), paid) == (float, 1.0)
    assert (type(terminated), type(truncated), type(info)) == (bool, bool, dict)


@pytest.mark.parametrize("reward", [math.nan, math.inf, -math.inf, np.float32("nan")])
def test_a_reward_that_is_not_finite_is_an_error_or_unscored(reward: Any) -> None:
    """It would spread through the group's mean; a named one has a way to say that it is none."""
    with pytest.raises(EnvError, match="not finite"):
        _started("on", reward, False, False, {}).step("go")

    *_, info = _started("on", 0.0, True, False, {"rewards": {"correct": reward}}).step("go")
    assert info["rewards"] == {"correct": None}


@pytest.mark.parametrize(
    ("result", "complaint"),
    [
        (("on", None, False, False, {}), "the reward must be a number, got None"),
        (("on", "1", False, False, {}), "the reward must be a number, got '1'"),
        (("on", 1.0, 0, False, {}), "terminated=0"),
        (("on", 1.0, False, None, {}), "truncated=None"),
        (("on", 1.0, False, False, None), "info that is no dict"),
        (("on", 1.0, False, {}), "must return 5 values"),
        ((3, 1.0, False, False, {}), "observation that is no list of messages: 3"),
        ((["a"], 1.0, False, False, {}), "no list of messages"),
        (("on", 1.0, True, False, {"rewards": 1.0}), "rewards must be given by name"),
        (("on", 1.0, True, False, {"rewards": {"a": "x"}}), "'a' must be a number"),
    ],
)
def test_a_broken_step_is_named(result: tuple[Any, ...], complaint: str) -> None:
    """The author learns which value is wrong; the env has to be reset."""
    env = _started(*result)

    with pytest.raises(EnvError, match=complaint):
        env.step("go")
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step("go")


def test_what_a_failed_reset_opened_is_closed() -> None:
    """Also after an episode that was closed before."""

    class Fragile(Counter):
        fails = False

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            if self.fails:
                raise OSError("no connection")
            return super().reset(seed=seed, options=options)

    env = Fragile()
    env.reset(seed=0)
    env.close()
    env.fails = True
    with pytest.raises(OSError, match="no connection"):
        env.reset(seed=0)
    env.close()

    assert env.closes == 2


def test_a_broken_reset_is_named() -> None:
    """Also when it returns the observation alone, as old gyms did."""
    env = Returns()
    env.opening = "begin"

    with pytest.raises(EnvError, match="reset must return 2 values"):
        env.reset()


def test_unscored_stays_unscored() -> None:
    """`None` is not 0."""
    rewards = {"a": None, "b": np.float64(0.5)}
    info = _started("on", 0.5, True, False, {"rewards": rewards}).step("go")[4]

    assert info["rewards"] == {"a": None, "b": 0.5}
    assert type(info["rewards"]["b"]) is float


@pytest.mark.parametrize("action", [3, None, user("hi"), ["hi"]])
def test_only_text_and_assistant_messages_are_actions(action: Any) -> None:
    """A wrong action is the caller's mistake, not the env's."""
    with pytest.raises(ConfigError, match="an action is text or an assistant message"):
        _started("on", 0.0, False, False, {}).step(action)


@EITHER
async def test_reaching_the_turn_limit_truncates(kind: type[Env]) -> None:
    """A limit says nothing about the task; an end on the last turn still is one."""
    env = kind()
    env.max_turns = 2
    env.reset(seed=0)
    assert env.step("go")[2:] == (False, False, {})
    assert env.step("go")[2:] == (False, True, {"stop_reason": "max_turns"})
    await env.areset(seed=0)
    await env.astep("go")
    assert (await env.astep("stop"))[2:] == (True, False, {})
    await env.aclose()


@given(st.integers(0, 2**40), st.sampled_from([Counter, AsyncCounter]))
def test_any_seed_gives_the_same_beginning_twice(seed: int, kind: type[Env]) -> None:
    """Whatever the env played before."""
    used = kind()
    used.reset()
    beginnings = {env.reset(seed=seed)[0][0].content for env in (kind(), used, used)}

    assert len(beginnings) == 1


@EITHER
def test_seeds_decide_everything(kind: type[Env]) -> None:
    """Members of a group must begin alike, and nobody else's randomness may change that."""
    random.seed(1)
    np.random.seed(1)
    before = random.getstate(), np.random.get_state()[1].tolist()
    one, other = kind(), kind()
    first = [one.reset(seed=7)[0], *(one.reset()[0] for _ in range(3))]
    second = [other.reset(seed=7)[0], *(other.reset()[0] for _ in range(3))]

    assert first == second
    assert len({observation[0].content for observation in first}) > 1
    assert one.reset(seed=8)[0] != first[0]
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before


@pytest.mark.filterwarnings("ignore:.*alternative render modes")
@EITHER
def test_gymnasiums_checker_accepts_it(kind: type[Env]) -> None:
    """The reference for what an env is."""
    env = kind()
    check_env(env)
    env.close()


def test_spaces_are_an_envs_own() -> None:
    """Seeding one env's action space must not seed another's."""
    assert Counter().action_space is not Counter().action_space


def test_a_task_that_is_none_is_refused() -> None:
    """Tasks come in by option; a typing error must not play another one."""
    with pytest.raises(ConfigError, match="is no Task"):
        Counter().reset(options={"task": "t"})


def test_tasks_may_come_as_mappings() -> None:
    """What Gymnasium's users write down by hand."""
    observation, _ = Counter().reset(options={"task": {"id": "t", "data": {}}})

    assert observation[0].content.startswith("t ")


async def test_cutting_an_episode_ends_it() -> None:
    """The loop's budget is the env's end too."""
    env = Counter()
    env.reset(seed=0)

    assert await env.acut() == {}
    with pytest.raises(EpisodeOverError):
        env.step("go")


async def test_a_step_may_be_abandoned() -> None:
    """After a timeout the loop closes the env, and closing still frees what it holds."""
    release, closed = threading.Event(), threading.Event()

    class Stuck(Counter):
        def step(self, action: Message) -> Any:
            release.wait()
            return super().step(action)

        def close(self) -> None:
            closed.set()

    env = Stuck()
    await env.areset(seed=0)
    for waiting in (env.astep("go"), env.aclose()):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(waiting, 0.02)
    release.set()

    assert await asyncio.to_thread(closed.wait, 5)


def test_weighted_sum_leaves_out_what_is_unscored() -> None:
    """Missing is missing, not 0."""
    assert weighted_sum({"a": 1.0, "b": 0.5, "c": None}, {"a": 0.5}) == 1.0
    assert weighted_sum({"a": None}, {}) is None
    assert weighted_sum({}, {}) is None


def test_the_default_tasks_differ_by_index() -> None:
    """An env without tasks of its own still plays distinct episodes."""
    tasks = Returns().tasks()

    assert isinstance(tasks, TaskSet)
    assert tasks[0].id != tasks[1].id
