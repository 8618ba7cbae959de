"""What a checkpoint says about the windows it was made with."""

from pathlib import Path

import numpy as np
import pytest

from agentgym.envs import TaskSet
from agentgym.errors import ConfigError
from agentgym.trainer.geometry import Geometry, content_of

ENDLESS = Geometry(groups=4, steps=1, seed=0, shuffled=None, tasks=None)


def test_tasks_without_an_end_are_other_ones_than_some(tmp_path: Path) -> None:
    ENDLESS.save(tmp_path)

    ENDLESS.refuse_other(tmp_path)
    with pytest.raises(ConfigError, match="shuffled=None, this run has shuffled=True"):
        ENDLESS._replace(shuffled=True, tasks=5).refuse_other(tmp_path)


def test_what_an_earlier_version_did_not_say_is_not_held_against_a_run(tmp_path: Path) -> None:
    Geometry(groups=4, steps=1).save(tmp_path)

    ENDLESS._replace(seed=7, tasks=5).refuse_other(tmp_path)
    with pytest.raises(ConfigError, match="4 groups"):
        ENDLESS._replace(groups=8).refuse_other(tmp_path)


def test_as_many_tasks_that_are_others_are_noticed(tmp_path: Path) -> None:
    """A data set that was put in another's place, or was mended."""
    known, same, other = (
        ENDLESS._replace(tasks=2, content=content_of(TaskSet.from_rows([{"q": q} for q in rows])))
        for rows in ("ab", "ab", "ac")
    )
    known.save(tmp_path)

    other.refuse_other(tmp_path)
    assert not same.has_other_tasks(tmp_path)
    assert other.has_other_tasks(tmp_path)
    assert not other.has_other_tasks(tmp_path / "earlier version")


def test_tasks_that_cannot_be_written_do_not_stop_a_checkpoint() -> None:
    """A task's data are JSON values by contract, which nobody checks."""
    assert content_of(TaskSet.from_rows([{"q": np.int64(3)}])) is None
