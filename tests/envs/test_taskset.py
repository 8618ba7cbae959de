"""Where tasks come from."""

import itertools

import datasets
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym.envs import Task, TaskSet

ROWS = [{"id": f"r{n}", "question": f"{n}?"} for n in range(5)]


@pytest.mark.parametrize("rows", [ROWS, tuple(ROWS), datasets.Dataset.from_list(ROWS)])
def test_rows_become_tasks(rows: datasets.Dataset) -> None:
    """A list or a data set from the hub, read lazily."""
    tasks = TaskSet.from_rows(rows)

    assert (len(tasks), tasks.size) == (5, 5)
    assert tasks[1] == tasks[-4] == tasks[np.int64(1)] == Task(id="r1", data=ROWS[1])
    assert [task.id for task in tasks] == ["r0", "r1", "r2", "r3", "r4"]


def test_rows_without_ids_are_numbered() -> None:
    """Ids are unique within the set."""
    assert [task.id for task in TaskSet.from_rows([{"q": 1}, {"q": 2}])] == ["0", "1"]


@pytest.mark.parametrize("index", [5, -6, 10**9])
def test_an_index_outside_is_an_error(index: int) -> None:
    """As for a list."""
    with pytest.raises(IndexError, match=str(index)):
        TaskSet.from_rows(ROWS)[index]


def test_a_procedural_set_has_a_task_for_every_index() -> None:
    """And no length to loop over by mistake."""
    tasks = TaskSet.procedural(lambda index: Task(id=str(index)))

    assert tasks.size is None
    assert tasks[10**12].id == str(10**12)
    assert tasks
    assert [task.id for task in itertools.islice(tasks, 3)] == ["0", "1", "2"]
    with pytest.raises(TypeError, match="no length"):
        len(tasks)
    with pytest.raises(IndexError):
        tasks[-1]


def test_an_empty_set_is_false() -> None:
    """So that a pipeline can refuse it."""
    assert not TaskSet.from_rows([])


@given(st.integers(0, 2**32), st.sampled_from([None, 1, 5]))
def test_draws_follow_the_generator(seed: int, size: int | None) -> None:
    """The same generator draws the same task, and always one of the set."""
    tasks = TaskSet(lambda index: Task(id=str(index)), size)
    one, other = (tasks.draw(np.random.default_rng(seed)) for _ in range(2))

    assert one == other
    assert size is None or int(one.id) < size
