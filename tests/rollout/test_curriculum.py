"""A curriculum draws what is half mastered, and goes on after a resume as it would have."""

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym.envs import TaskSet
from agentgym.envs.mixture import MixedTasks
from agentgym.envs.mixture.tasks import part_of
from agentgym.errors import ConfigError
from agentgym.rollout.curriculum import FLOOR, Curriculum, Tried, curriculum_over
from agentgym.trajectory import Task

LABELS = ("easy", "middle", "hard")


def curriculum(seed: int = 0) -> Curriculum:
    tasks = {label: TaskSet.procedural(lambda i: Task(id=str(i))) for label in LABELS}
    return Curriculum(MixedTasks(tasks, dict.fromkeys(LABELS, 1.0)), seed)


def mastered(made: Curriculum, rates: dict[str, float]) -> None:
    made.observe(
        Tried(group=label, task=f"{label}/0", reward=rate) for label, rate in rates.items()
    )


def test_what_is_half_mastered_comes_most_often():
    """The mastered and the hopeless still come, at the floor."""
    made = curriculum()
    mastered(made, {"easy": 1.0, "middle": 0.5, "hard": 0.0})
    counts = Counter(part_of(made[i].id) for i in range(4000))

    expected = {"easy": FLOOR, "middle": 1.0, "hard": FLOOR}
    for label, weight in expected.items():
        share = weight / sum(expected.values())
        assert made.shares()[label] == pytest.approx(share)
        assert counts[label] / 4000 == pytest.approx(share, abs=0.03)


tried = st.lists(
    st.builds(
        Tried,
        group=st.sampled_from("gh"),
        task=st.sampled_from([f"{label}/7" for label in LABELS]),
        reward=st.none() | st.floats(-5, 5),
    ),
    max_size=8,
)


@given(st.lists(tried, max_size=5), st.integers(0, 100))
def test_shares_are_a_distribution_whatever_was_seen(windows: list[list[Tried]], index: int):
    """Unscored trajectories and rewards out of range leave it one."""
    made, again = curriculum(), curriculum()
    for window in windows:
        made.observe(window)
        again.observe(window)

    assert sum(made.shares().values()) == pytest.approx(1)
    assert min(made.shares().values()) > 0
    assert all(0 <= rate <= 1 for rate in made.rates.values())
    assert made[index] == again[index]


def test_a_saved_curriculum_goes_on_as_it_would_have(tmp_path: Path):
    """Same rates, same seed: the same tasks."""
    made, other = curriculum(), curriculum()
    mastered(made, {"easy": 0.9, "middle": 0.3, "hard": 0.01})
    made.save(tmp_path)
    other.load(tmp_path)

    assert [other[i] for i in range(50)] == [made[i] for i in range(50)]


def test_a_checkpoint_without_rates_is_refused(tmp_path: Path):
    """It would silently begin anew."""
    with pytest.raises(ConfigError, match="without a curriculum"):
        curriculum().load(tmp_path)


def test_there_must_be_something_to_choose_from():
    """One env is no curriculum; the message says how to make parts."""
    with pytest.raises(ConfigError, match="--env mixture"):
        curriculum_over(TaskSet.procedural(lambda i: Task(id=str(i))), 0)
