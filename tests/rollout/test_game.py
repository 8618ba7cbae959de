"""An env's own start-up code is foreign: what goes wrong in it is one line that names the env."""

import math
from typing import Any

import pytest

from agentgym.envs import TaskSet
from agentgym.errors import ConfigError
from agentgym.rollout.game import game_of, weights_by_name


def test_an_env_that_cannot_be_built_is_named(add_env: Any):
    """Its author's error would otherwise end the run with a traceback."""

    class Broken(add_env):
        def __init__(self) -> None:
            raise ValueError("no such data set")

    with pytest.raises(ConfigError, match="'function' cannot be built: ValueError: no such"):
        game_of(lambda: Broken())
    with pytest.raises(ConfigError, match="'Broken' cannot be built: ValueError: no such"):
        game_of(Broken)


def test_tasks_that_cannot_be_listed_name_env_and_split(add_env: Any):
    """Most data sets are read there."""

    class Unreadable(add_env):
        def tasks(self, split: str = "train") -> TaskSet:
            if split == "train":
                return super().tasks(split)
            raise OSError("no such file")

    game = game_of(Unreadable)
    with pytest.raises(ConfigError, match="'Unreadable': tasks of split 'eval': OSError: no such"):
        game.held_out()


def test_a_split_without_tasks_is_refused_when_it_is_asked_for(add_env: Any):
    """The other one may be all that is played."""

    class Empty(add_env):
        def tasks(self, split: str = "train") -> TaskSet:
            return TaskSet.from_rows([])

    game = game_of(Empty)
    with pytest.raises(ConfigError, match="'Empty' has no tasks in split 'train'"):
        _ = game.train
    with pytest.raises(ConfigError, match="'Empty' has no tasks in split 'eval'"):
        game.held_out()
    with pytest.raises(ConfigError, match="split 'train'"):
        _ = game_of(add_env, train_rows=[]).train


def test_rows_that_are_none_at_all_are_refused_at_once(add_env: Any):
    """An empty data set is a mistake of its reader, not a wish for the env's own tasks."""
    with pytest.raises(ConfigError, match="train_dataset is empty"):
        game_of(add_env, train_rows=[])


@pytest.mark.parametrize("weight", [math.nan, math.inf, -math.inf, "1"])
def test_a_weight_is_a_finite_number_whoever_gave_it(weight: Any):
    """NaN times any reward unscores every trajectory; `rollout` and `train` both ask here."""
    with pytest.raises(ConfigError, match=r"reward_weights: correct=.* must be a finite number"):
        weights_by_name({"correct": 1.0}, [], {"correct": weight})
    with pytest.raises(ConfigError, match="reward_weights: correct="):
        weights_by_name({"correct": weight}, [], None)

    assert weights_by_name({"correct": 1.0}, ["f"], {"f": -2}) == {"correct": 1.0, "f": -2}
