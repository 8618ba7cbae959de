"""What must hold of every update, on real trajectories of a real model."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import TrainerCallback

from agentgym.trainer.callbacks import AgentCallback
from agentgym.trainer.grpo import AgentGRPOTrainer
from agentgym.trajectory import RolloutOutput

MakeTrainer = Callable[..., AgentGRPOTrainer]


class Collected(AgentCallback):
    """Keeps what the trainer played."""

    def __init__(self) -> None:
        self.windows: list[list[RolloutOutput]] = []

    def on_window(self, args: Any, state: Any, control: Any, **window: Any) -> None:
        self.windows.append(list(window["outputs"]))


class Gradients(TrainerCallback):
    """Keeps the gradient of every optimizer step, before it is clipped or used."""

    def __init__(self) -> None:
        self.seen: list[torch.Tensor] = []

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        grads = [p.grad for p in kwargs["model"].parameters() if p.grad is not None]
        self.seen.append(torch.cat([g.flatten() for g in grads]) if grads else torch.zeros(0))


def gradient(make_trainer: MakeTrainer, **changes: Any) -> torch.Tensor:
    """[P] of the first optimizer step."""
    gradients = Gradients()
    changes = {"max_grad_norm": 0.0, "max_completion_length": 16, **changes}
    trainer = make_trainer({"callbacks": [gradients]}, **changes)
    trainer.train()
    return gradients.seen[0]


PLAIN: dict[str, torch.Tensor] = {}
"""By settings: the gradient of the usual way, which is the same in every test."""


def plain_gradient(make_trainer: MakeTrainer, **common: Any) -> torch.Tensor:
    if str(common) not in PLAIN:
        PLAIN[str(common)] = gradient(make_trainer, **common)
    return PLAIN[str(common)]


def first_log(trainer: AgentGRPOTrainer) -> dict[str, float]:
    row: dict[str, float] = trainer.state.log_history[0]
    return row


def test_at_step_0_the_trainer_agrees_with_the_engine(make_trainer: MakeTrainer, model_folder: str):
    """Invariant 3: otherwise the policy gradient is that of another policy."""
    collected = Collected()
    trainer = make_trainer({"model": model_folder, "callbacks": [collected]}, beta=0.1)
    trainer.train()

    [outputs] = collected.windows
    assert max(output.num_turns for output in outputs) == 3, "the test needs several turns"
    log = first_log(trainer)
    assert log["sampling/logp_diff_max"] <= 1e-4
    assert log["ratio_mean"] == pytest.approx(1.0, abs=1e-6)
    assert log["kl"] == pytest.approx(0.0, abs=1e-6)
    assert log["clip_ratio/region_mean"] == 0.0


@pytest.mark.parametrize("temperature", [0.5, 1.7])
def test_they_agree_at_any_temperature(make_trainer: MakeTrainer, temperature: float):
    """The distribution sampled from is the one that is trained."""
    trainer = make_trainer(temperature=temperature)
    trainer.train()

    assert first_log(trainer)["sampling/logp_diff_max"] <= 1e-4


WAYS = {
    "padded": {"padding": True},
    "no shared prompts": {"share_prompts": False},
    "small micro-batches": {"token_budget": 64},
    "one trajectory at a time": {"token_budget": 1},
    "padded and small": {"padding": True, "token_budget": 100},
    "accumulated": {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2},
    "accumulated and split": {
        "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": 4,
        "token_budget": 70,
    },
    "zero advantages computed": {"skip_zero_advantage": False},
    "checkpointed activations": {"gradient_checkpointing": True},
}


@pytest.mark.parametrize(
    ("loss_type", "way"),
    [("dapo", way) for way in WAYS]
    + [("grpo", "accumulated and split"), ("grpo", "padded and small")],
)
def test_the_gradient_does_not_depend_on_how_it_is_computed(
    make_trainer: MakeTrainer, way: str, loss_type: str
):
    """Invariant 4: packing, sharing, splitting and accumulation are ways, not settings."""
    plain = plain_gradient(make_trainer, loss_type=loss_type)
    other = gradient(make_trainer, loss_type=loss_type, **WAYS[way])

    assert torch.cosine_similarity(plain, other, dim=0) >= 0.99999
    assert other.norm() == pytest.approx(plain.norm().item(), rel=1e-4)


@pytest.mark.parametrize(("loss_type", "level"), [("bnpo", "token"), ("dr_grpo", "sequence")])
def test_nor_for_the_other_losses(make_trainer: MakeTrainer, loss_type: str, level: str):
    """Every loss is normalised over the whole step."""
    common = {"loss_type": loss_type, "importance_sampling_level": level}
    plain = plain_gradient(make_trainer, **common)
    other = gradient(make_trainer, **common, token_budget=64, padding=True)

    assert torch.cosine_similarity(plain, other, dim=0) >= 0.99999
    assert other.norm() == pytest.approx(plain.norm().item(), rel=1e-4)


@pytest.mark.parametrize("scaled", [True, False])
def test_the_update_does_not_depend_on_hugging_faces_loss_scaling(
    make_trainer: MakeTrainer, monkeypatch: pytest.MonkeyPatch, scaled: bool
):
    """Whether a model accepts loss arguments must not change the step (TRL issue 10117)."""
    plain = plain_gradient(make_trainer)
    monkeypatch.setattr(AgentGRPOTrainer, "loss_is_scaled_for_ga", None)
    monkeypatch.setattr(AgentGRPOTrainer, "model_accepts_loss_kwargs", scaled, raising=False)

    other = gradient(make_trainer, per_device_train_batch_size=4, gradient_accumulation_steps=2)
    assert torch.allclose(plain, other, rtol=1e-3, atol=1e-6)


def test_the_reported_loss_does_not_depend_on_the_split(make_trainer: MakeTrainer):
    """The number people look at is the loss of the step, whatever it was computed in."""
    losses = []
    for changes in ({}, {"token_budget": 64}, {"gradient_accumulation_steps": 2}):
        batch = 8 // changes.get("gradient_accumulation_steps", 1)
        trainer = make_trainer(per_device_train_batch_size=batch, loss_type="grpo", **changes)
        trainer.train()
        losses.append(first_log(trainer)["loss"])

    assert losses[1:] == pytest.approx([losses[0]] * 2, abs=1e-5)


def test_old_logprobs_are_those_of_the_policy_that_played(make_trainer: MakeTrainer):
    """Several steps per window: the ratio is 1 until the weights change, then it moves."""
    trainer = make_trainer(
        max_steps=8, steps_per_generation=2, num_iterations=2, per_device_train_batch_size=4
    )
    trainer.train()

    ratios = [row["ratio_mean"] for row in trainer.state.log_history if "ratio_mean" in row]
    moved = [
        row["sampling/logp_diff_max"]
        for row in trainer.state.log_history
        if "loss" in row and "sampling/logp_diff_max" in row
    ]
    assert ratios[0] == pytest.approx(1.0, abs=1e-6)
    assert ratios[4] == pytest.approx(1.0, abs=1e-6)
    assert all(abs(ratio - 1.0) > 1e-6 for i, ratio in enumerate(ratios) if i % 4)
    assert max(moved) <= 1e-4


def test_every_window_is_played_once_and_used_num_iterations_times(make_trainer: MakeTrainer):
    """Invariant 5, in the real loop."""
    collected = Collected()
    trainer = make_trainer(
        {"callbacks": [collected]},
        max_steps=8,
        steps_per_generation=2,
        num_iterations=2,
        per_device_train_batch_size=4,
    )
    trainer.train()

    assert len(collected.windows) == 2
    assert trainer.window is not None
    assert set(trainer.window.consumed.values()) == {2}
    ids = [output.request_id for window in collected.windows for output in window]
    assert len(set(ids)) == len(ids) == 16


def test_every_trajectory_was_sampled_by_the_current_weights(make_trainer: MakeTrainer):
    """One policy version per window, and a new one after every update."""
    collected = Collected()
    make_trainer({"callbacks": [collected]}, max_steps=3).train()

    versions = [{v for o in window for v in o.policy_versions} for window in collected.windows]
    assert versions == [{0}, {1}, {2}]


@settings(
    max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(budget=st.integers(1, 600), share=st.booleans(), padding=st.booleans())
def test_any_token_budget_gives_the_same_gradient(
    make_trainer: MakeTrainer, budget: int, share: bool, padding: bool
):
    """A property, not three examples."""
    plain = plain_gradient(make_trainer)
    other = gradient(make_trainer, token_budget=budget, share_prompts=share, padding=padding)

    assert torch.cosine_similarity(plain, other, dim=0) >= 0.99999
