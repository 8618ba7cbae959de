"""Several envs in one run: each task in its env, each env in its share."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym import envs
from agentgym.envs import TaskSet
from agentgym.envs.mixture import MixedTasks, MixtureEnv
from agentgym.envs.mixture.tasks import PERIOD, part_of
from agentgym.errors import ConfigError, NotRegisteredError
from agentgym.trajectory import Task

PARTS: dict[str, Any] = {
    "easy": {"env": "calculator", "args": {"levels": [1]}, "weight": 3},
    "lookup": {},
}


def endless(label: str) -> TaskSet:
    return TaskSet.procedural(lambda i: Task(id=f"{label}{i}"))


weights = st.dictionaries(st.sampled_from("abcd"), st.integers(1, 9).map(float), min_size=1)


@given(weights, st.integers(0, 3 * PERIOD), st.integers(1, 60))
def test_any_stretch_has_every_part_in_its_share(
    weights: dict[str, float], start: int, length: int
):
    """Give or take two tasks: no part waits for its turn, wherever a window begins."""
    tasks = MixedTasks({label: endless(label) for label in weights}, weights)
    counts = Counter(part_of(tasks[i].id) for i in range(start, start + length))

    total = sum(weights.values())
    for label, weight in weights.items():
        assert abs(counts[label] - length * weight / total) <= 2


@settings(max_examples=25)  # each is thousands of tasks
@given(weights)
def test_each_parts_tasks_come_in_order_without_a_gap(weights: dict[str, float]):
    """So that a finite part is seen whole before it begins anew."""
    tasks = MixedTasks({label: endless(label) for label in weights}, weights)
    seen: dict[str, list[str]] = {label: [] for label in weights}
    for index in range(2 * PERIOD + 17):
        label, _, name = tasks[index].id.partition("/")
        seen[label].append(name)

    for label, names in seen.items():
        assert names == [f"{label}{i}" for i in range(len(names))]


def test_a_finite_part_begins_anew_under_other_ids():
    """Ids stay unique, so that a window has no two groups of one name."""
    finite = TaskSet.from_rows([{"id": "x"}, {"id": "y"}])
    tasks = MixedTasks({"a": finite}, {"a": 1.0})
    rounds = [{tasks[2 * i].id, tasks[2 * i + 1].id} for i in range(2)]

    assert rounds == [{"a/x", "a/y"}, {"a/x#1", "a/y#1"}]


@given(weights, st.lists(st.integers(1, 40), min_size=4, max_size=4))
def test_a_held_out_mixture_ends_before_a_task_comes_twice(
    weights: dict[str, float], sizes: list[int]
):
    """Counted twice, a task would weigh twice in the score; one more would be the first to."""
    parts = {
        label: TaskSet.from_rows([{"id": str(i)} for i in range(size)])
        for label, size in zip(weights, sizes, strict=False)
    }
    tasks = MixedTasks(parts, weights, once=True)

    assert tasks.size is not None
    assert not any("#" in tasks[i].id for i in range(tasks.size))
    assert "#" in MixedTasks(parts, weights)[tasks.size].id


async def test_an_episode_is_the_parts_own():
    """Its tools, its question and its rewards, under the part's label."""
    env = MixtureEnv(PARTS)
    tasks = env.tasks("eval")
    task = next(task for task in tasks if task.id.startswith("easy/"))
    own = envs.make("calculator", levels=[1])
    messages, _ = await env.areset(seed=1, options={"task": task})
    expected, _ = await own.areset(seed=1, options={"task": task["task"]})

    assert messages == expected
    assert [tool.name for tool in env.tools] == [tool.name for tool in own.tools]
    answer = f"Answer: {task['task']['data']['answer']}"
    _, reward, terminated, _, info = await env.astep(answer)
    assert (reward, terminated) == (1.0, True)
    assert info["rewards"] == {"easy/correct": 1.0, "easy/format": 1.0}
    assert env.reward_weights["easy/correct"] == 0.9
    await env.aclose()
    await own.aclose()


async def test_a_cut_episode_is_scored_by_its_part():
    """A budget that ends it early leaves labelled rewards too."""
    env = MixtureEnv(["calculator"])
    await env.areset(seed=0, options={"task": env.tasks("train")[0]})

    assert await env.acut() == {"calculator/correct": 0.0, "calculator/format": 0.0}
    await env.aclose()


@pytest.mark.parametrize(
    ("parts", "complaint"),
    [
        ([], "needs parts"),
        ({"a/b": {}}, "no slash"),
        ({"calculator": {"weigth": 2}}, "weigth"),
        ({"calculator": {"weight": 0}}, "weight"),
        ({"calculator": "x"}, "calculator"),
    ],
)
def test_malformed_parts_are_named(parts: Any, complaint: str):
    """One line that says which part and what is wrong with it."""
    with pytest.raises(ConfigError, match=complaint):
        MixtureEnv(parts)


def test_a_part_that_names_no_env_is_refused():
    """With a suggestion, as everywhere."""
    with pytest.raises(NotRegisteredError, match="calculator"):
        MixtureEnv(["calculater"]).tasks()


def test_a_share_too_small_to_get_a_task_is_refused():
    """Silently it would never be played."""
    with pytest.raises(ConfigError, match="would get no task"):
        MixedTasks({"a": endless("a"), "b": endless("b")}, {"a": 1.0, "b": 1e-5})
