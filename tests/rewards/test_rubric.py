"""Reward functions by name: what is missing stays missing, and a failure stays where it is."""

import asyncio
import math
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym.envs.base import weighted_sum
from agentgym.errors import ConfigError
from agentgym.messages import assistant, user
from agentgym.rewards import Rubric, merge
from agentgym.rewards.rubric import ERRORS
from agentgym.trajectory import RolloutOutput, StopReason, Task

scores = st.none() | st.floats(-10, 10)


def trajectory(text: str = "42", **fields: object) -> RolloutOutput:
    defaults = {
        "request_id": text,
        "group_id": "g",
        "task_id": "t",
        "env": "add",
        "seed": 0,
        "messages": (user("?"), assistant(text)),
        "segments": (),
        "rewards": {"correct": 1.0},
        "reward": 1.0,
        "stop_reason": StopReason.FINAL_ANSWER,
    }
    return RolloutOutput(**{**defaults, **fields})  # type: ignore[arg-type]


def length(output: RolloutOutput) -> float:
    return float(len(output.messages[-1].content))


async def async_length(output: RolloutOutput) -> float:
    await asyncio.sleep(0)
    return length(output)


class LengthJudge:
    async def __call__(self, output: RolloutOutput) -> float:
        return length(output)


def broken(output: RolloutOutput) -> float:
    raise ValueError("no judge today")


def quits(output: RolloutOutput) -> float:
    raise SystemExit(3)


@given(
    st.dictionaries(st.sampled_from("abcd"), scores),
    st.dictionaries(st.sampled_from("ab"), st.floats(-3, 3)),
)
def test_the_weighted_sum_is_over_the_scored_only(
    rewards: dict[str, float | None], weights: dict[str, float]
):
    """Missing is missing, not 0; nothing scored is no reward at all."""
    total = weighted_sum(rewards, weights)

    scored = {name: value for name, value in rewards.items() if value is not None}
    if not scored:
        assert total is None
    else:
        expected = sum(weights.get(name, 1.0) * value for name, value in scored.items())
        assert total == pytest.approx(expected)


@pytest.mark.parametrize("function", [length, async_length, LengthJudge()])
async def test_sync_and_async_functions_and_callable_objects_are_columns(function: object):
    """The env's column stays; the sum is weighed anew with every column."""
    rubric = Rubric({"length": function}, {"length": 0.5, "correct": 2.0})  # type: ignore[dict-item]

    [scored] = await rubric.score([trajectory("four")])
    assert scored.rewards == {"correct": 1.0, "length": 4.0}
    assert scored.reward == 4.0


async def test_a_failing_function_unscores_its_own_column_only():
    """A broken judge must not cost a trajectory its other rewards, nor another trajectory any."""

    def fails_on_bad(output: RolloutOutput) -> float:
        return length(output) if output.request_id == "good" else broken(output)

    rubric = Rubric({"judge": fails_on_bad})

    good, bad = await rubric.score([trajectory("good"), trajectory("bad")])
    assert good.rewards["judge"] == 4.0
    assert ERRORS not in good.rollout_infos
    assert bad.rewards["judge"] is None
    assert bad.reward == 1.0
    assert bad.rollout_infos[ERRORS] == {"judge": "judge: ValueError: no judge today"}


@pytest.mark.parametrize("value", [math.nan, math.inf, None])
async def test_what_is_no_number_is_unscored(value: float | None):
    """NaN in one column would otherwise poison the sum and the group's mean."""
    [scored] = await Rubric({"odd": lambda _: value}).score([trajectory()])

    assert scored.rewards["odd"] is None
    assert scored.reward == 1.0


async def test_a_function_that_exits_is_a_failure_like_any_other():
    """`sys.exit` in a grader must not end the run."""
    [scored] = await Rubric({"judge": quits}).score([trajectory()])

    assert scored.rewards["judge"] is None
    assert "SystemExit" in scored.rollout_infos[ERRORS]["judge"]


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_a_function_that_hangs_is_unscored_at_its_deadline(kind: str):
    """And its thread, if it has one, does not stall the others."""
    release = threading.Event()

    async def hangs(output: RolloutOutput) -> float:
        await asyncio.sleep(60)
        return 0.0

    def blocks(output: RolloutOutput) -> float:
        release.wait(60)
        return 0.0

    rubric = Rubric(
        {"slow": hangs if kind == "async" else blocks, "length": length}, timeout_s=0.05
    )
    started = time.perf_counter()
    try:
        [scored] = await rubric.score([trajectory("four")])
    finally:
        release.set()

    assert time.perf_counter() - started < 5
    assert scored.rewards == {"correct": 1.0, "slow": None, "length": 4.0}
    assert scored.rollout_infos[ERRORS] == {"slow": "slow: no answer within 0.05 s"}


async def test_blocking_functions_run_beside_each_other():
    """One thread each: eight judges that block for 0.1 s take 0.1 s, not 0.8 s."""
    barrier = threading.Barrier(8)

    def meets(output: RolloutOutput) -> float:
        return float(barrier.wait(10) >= 0)

    outputs = await Rubric({"meets": meets}).score([trajectory(str(i)) for i in range(8)])
    assert [output.rewards["meets"] for output in outputs] == [1.0] * 8


async def test_a_failed_trajectory_is_not_judged():
    """It says nothing of the policy, so it must not get a reward from a function either."""
    failed = trajectory(stop_reason=StopReason.ENV_ERROR, rewards={}, reward=None)

    assert await Rubric({"length": length}).score([failed]) == [failed]


async def test_a_function_named_like_an_env_reward_is_refused():
    """Otherwise one of the two would be overwritten silently."""
    with pytest.raises(ConfigError, match="'correct' is both"):
        await Rubric({"correct": length}).score([trajectory()])


def test_merging_nothing_still_applies_the_weights():
    """The user's weights hold for the env's own columns too."""
    assert merge(trajectory(), {}, {"correct": 3.0}).reward == 3.0


@pytest.mark.parametrize("value", ["1", b"1", [1.0]])
async def test_what_only_reads_like_a_number_is_refused(value: object):
    """`"1"` is a grader's text that nobody parsed; it is said so, not scored."""
    [scored] = await Rubric({"judge": lambda _: value}).score([trajectory()])  # type: ignore[arg-type,return-value]

    assert scored.rewards["judge"] is None
    assert scored.rollout_infos[ERRORS]["judge"] == f"a reward is a number or None, got {value!r}"


async def test_what_a_function_writes_into_the_record_is_lost():
    """The record is evidence: a judge that reads it cannot change what others see or train on."""

    def scribbles(output: RolloutOutput) -> float:
        output.rewards["zzz"] = 99.0
        output.rollout_infos["facts"]["seen"] = True
        return 2.0

    given = trajectory(rollout_infos={"facts": {}})

    [scored] = await Rubric({"judge": scribbles}).score([given])
    assert scored.rewards == {"correct": 1.0, "judge": 2.0}
    assert given.rewards == {"correct": 1.0}
    assert scored.rollout_infos == {"facts": {}}


def asks_for_the_task(output: RolloutOutput, task: Task) -> float:
    task.data["answer"] = "scribbled"
    return float(output.messages[-1].content == "42" and task.id == "t")


class TaskJudge:
    async def __call__(self, output: RolloutOutput, task: Task) -> float:
        return float(output.messages[-1].content == task["answer"])


async def test_a_function_with_a_parameter_task_is_given_it():
    """Sync, async, and objects; each has a copy, so that what it writes there is lost."""
    task = Task(id="t", data={"answer": "42"})
    rubric = Rubric({"first": asks_for_the_task, "second": TaskJudge(), "length": length})

    scored = await rubric.score_one(trajectory("42"), task)

    assert scored.rewards == {"correct": 1.0, "first": 1.0, "second": 1.0, "length": 2.0}
    assert task["answer"] == "42"


async def test_without_the_task_what_asks_for_it_is_unscored():
    """A stored trajectory does not bring it."""
    [scored] = await Rubric({"judge": TaskJudge(), "length": length}).score([trajectory("42")])

    assert scored.rewards == {"correct": 1.0, "judge": None, "length": 2.0}
    assert "task" in scored.rollout_infos[ERRORS]["judge"]
