"""A run with a curriculum: what it draws follows from what it measured, also after a resume."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentgym.envs.mixture import MixtureEnv
from agentgym.errors import ConfigError
from agentgym.trainer.callbacks import AgentCallback
from agentgym.trainer.grpo import AgentGRPOTrainer

MakeTrainer = Callable[..., AgentGRPOTrainer]


class Played(AgentCallback):
    """The tasks of every window."""

    def __init__(self) -> None:
        self.tasks: list[list[str]] = []

    def on_window(self, args: Any, state: Any, control: Any, **window: Any) -> None:
        self.tasks.append(sorted({output.task_id for output in window["outputs"]}))


def parts() -> MixtureEnv:
    return MixtureEnv(
        {
            "easy": {"env": "calculator", "args": {"levels": [1]}},
            "hard": {"env": "calculator", "args": {"levels": [5]}},
        }
    )


def test_a_resumed_curriculum_goes_on_as_the_whole_run(make_trainer: MakeTrainer, tmp_path: Path):
    """The rates are part of the checkpoint: the same tasks are drawn afterwards."""
    common = {"max_steps": 4, "save_strategy": "steps", "save_steps": 2, "curriculum": True}
    whole, rest = Played(), Played()
    trainer = make_trainer({"env": parts, "callbacks": [whole]}, **common)
    trainer.train()
    resumed = make_trainer(
        {"env": parts, "callbacks": [rest]}, **common, output_dir=str(tmp_path / "again")
    )
    resumed.train(resume_from_checkpoint=str(tmp_path / "out" / "checkpoint-2"))

    assert trainer.curriculum is not None
    assert resumed.curriculum is not None
    assert trainer.curriculum.rates
    assert resumed.curriculum.rates == trainer.curriculum.rates
    assert rest.tasks == whole.tasks[2:]
    logged = trainer.state.log_history[-2]
    assert {name.partition("/")[2] for name in logged if name.startswith("curriculum/")} == set(
        trainer.curriculum.rates
    )


def test_a_curriculum_over_one_env_is_refused(make_trainer: MakeTrainer):
    """Before the model is touched: there is nothing to choose between."""
    with pytest.raises(ConfigError, match="--env mixture"):
        make_trainer({"env": "calculator"}, curriculum=True)
