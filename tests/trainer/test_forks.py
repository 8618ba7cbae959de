"""Training on trajectories whose history was rewritten, with a real model and the real engine."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from transformers import TrainerCallback

from agentgym.rollout import GymScheduler, NextTurn, Trajectory
from agentgym.trainer.callbacks import AgentCallback
from agentgym.trainer.grpo import AgentGRPOTrainer
from agentgym.trajectory import RolloutOutput, Turn

MakeTrainer = Callable[..., AgentGRPOTrainer]


class Forgetful(GymScheduler):
    """Shows the question and the last observation only: a fork at every turn."""

    async def step(self, trajectory: Trajectory, turn: Turn) -> NextTurn:
        return NextTurn(history=(trajectory.messages[0],), messages=turn.observation)


class Interrupting(GymScheduler):
    """Takes the second half of every turn back and goes on from its own words."""

    async def step(self, trajectory: Trajectory, turn: Turn) -> NextTurn:
        half = turn.text[: len(turn.text) // 2]
        return NextTurn(completion=half, text=" no, ")


class Seen(AgentCallback):
    """What was played, and the gradient of the first step."""

    def __init__(self) -> None:
        self.outputs: list[RolloutOutput] = []

    def on_window(self, args: Any, state: Any, control: Any, **window: Any) -> None:
        self.outputs += window["outputs"]


class Gradient(TrainerCallback):
    """[P] of the last optimizer step."""

    seen: torch.Tensor

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        grads = [p.grad for p in kwargs["model"].parameters() if p.grad is not None]
        self.seen = torch.cat([g.flatten() for g in grads])


@pytest.mark.parametrize("scheduler", [Forgetful, Interrupting])
def test_at_step_0_the_trainer_agrees_with_the_engine(
    make_trainer: MakeTrainer, model_folder: str, scheduler: type[GymScheduler]
):
    """Invariant 3 over all traces: every trained token follows what the engine saw before it."""
    seen = Seen()
    trainer = make_trainer(
        {"model": model_folder, "scheduler": scheduler, "callbacks": [seen]}, beta=0.1
    )
    trainer.train()

    assert max(len(output.traces) for output in seen.outputs) >= 3
    log = trainer.state.log_history[0]
    assert log["sampling/logp_diff_max"] <= 1e-4
    assert log["ratio_mean"] == pytest.approx(1.0, abs=1e-6)
    assert log["kl"] == pytest.approx(0.0, abs=1e-6)


def gradient(make_trainer: MakeTrainer, **settings: Any) -> torch.Tensor:
    """[P] of the first optimizer step."""
    kept = Gradient()
    objects = {"scheduler": Forgetful, "callbacks": [kept]}
    make_trainer(objects, max_grad_norm=0.0, max_completion_length=16, **settings).train()
    return kept.seen


PLAIN: dict[str, torch.Tensor] = {}
"""By settings: the gradient of the usual way, which is the same in every test."""


@pytest.mark.parametrize("level", ["token", "sequence"])
@pytest.mark.parametrize("loss_type", ["dapo", "grpo"])
@pytest.mark.parametrize("way", [{"padding": True}, {"token_budget": 1}, {"share_prompts": False}])
def test_the_gradient_does_not_depend_on_how_it_is_computed(
    make_trainer: MakeTrainer, way: dict[str, Any], loss_type: str, level: str
):
    """Invariant 4: the traces of a trajectory are one sequence, parted or not."""
    common = {"loss_type": loss_type, "importance_sampling_level": level}
    if str(common) not in PLAIN:
        PLAIN[str(common)] = gradient(make_trainer, **common)
    plain = PLAIN[str(common)]
    other = gradient(make_trainer, **common, **way)

    assert plain.norm() > 0
    assert torch.cosine_similarity(plain, other, dim=0) >= 0.99999
    assert other.norm() == pytest.approx(plain.norm().item(), rel=1e-4)
