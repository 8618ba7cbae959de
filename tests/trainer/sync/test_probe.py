"""An engine that samples from other weights is found out before anything is learned from it."""

import copy
import logging
import math
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pytest
import torch
from accelerate import Accelerator
from peft import LoraConfig
from staleness_kit import OwnWeights

from agentgym.engines.transformers.copying import CopyEngine
from agentgym.engines.weights import Weights
from agentgym.errors import ConfigError, EngineError, UsageError
from agentgym.rendering import Renderer
from agentgym.rollout.background import LoopThread
from agentgym.trainer.grpo import AgentGRPOTrainer
from agentgym.trainer.logprobs import TokenLogprobs
from agentgym.trainer.packing import PackedBatch
from agentgym.trainer.ranks import Ranks
from agentgym.trainer.sync.probe import Difference, Prober, ProbeSettings

Make = Callable[..., AgentGRPOTrainer]
T = TypeVar("T")


class Stubborn(CopyEngine):
    """Says that it has the new weights, and keeps its own."""

    async def update_weights(self, weights: Weights | None = None) -> int:
        assert weights is not None
        for _ in weights.buckets():
            pass
        self._version = self._versions[0] = weights.version
        return weights.version


@pytest.fixture
def close() -> Iterator[list[CopyEngine]]:
    """Engines to end with the test."""
    import asyncio

    engines: list[CopyEngine] = []
    yield engines
    for engine in engines:
        asyncio.run(engine.aclose())


def test_agreement_is_logged_and_training_goes_on(make_trainer: Make, close: list[CopyEngine]):
    engine = CopyEngine(make_trainer().policy)
    close.append(engine)
    trainer = make_trainer({"engine": engine}, max_steps=3, probe_every=2)
    trainer.train()

    rows = [row for row in trainer.state.log_history if "sync/version" in row]
    assert [row["sync/version"] for row in rows] == [1, 2, 3]
    assert ["sync/probe_max" in row for row in rows] == [True, False, True]
    assert max(row.get("sync/probe_max", 0.0) for row in rows) < 1e-4
    assert all(row["sync/changed"] > 0 for row in rows)


def test_dropout_has_no_say_in_it(make_trainer: Make):
    """The trainer is asked for what it would say, also between two steps of a window."""
    adapter = LoraConfig(
        lora_alpha=64, lora_dropout=0.5, target_modules=["q_proj"], init_lora_weights=False
    )
    trainer = make_trainer(
        {"peft_config": adapter},
        max_steps=2,
        steps_per_generation=2,
        staleness=1,
        sync_every="step",
        probe_every=1,
        disable_dropout=False,
    )
    trainer.train()

    rows = [row for row in trainer.state.log_history if "sync/probe_max" in row]
    assert len(rows) == 2


@pytest.mark.parametrize(
    ("engine", "model", "message"),
    [
        (None, "not loaded", "is for engines that take an adapter alone"),
        (OwnWeights(), "not loaded", "the model has none: give peft_config"),
        (OwnWeights(), None, "the model has none: give peft_config"),
    ],
)
def test_an_adapter_that_cannot_travel_alone_is_refused_before_the_model_is_loaded(
    make_trainer: Make, engine: OwnWeights | None, model: str | None, message: str
):
    """Not when the first weights are sent; nor is a setting ignored where none ever are."""
    with pytest.raises(ConfigError, match=f"sync_kind='lora' .*{message}"):
        make_trainer({"engine": engine, "model": model}, sync_kind="lora")


@pytest.mark.parametrize("factor", [0.5, 0.97])
def test_an_engine_with_other_weights_stops_the_run_with_the_figure(
    make_trainer: Make, close: list[CopyEngine], factor: float
):
    """Also where they are nearly the same."""
    policy = make_trainer().policy
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.mul_(factor)
    engine = Stubborn(policy)
    close.append(engine)
    trainer = make_trainer({"engine": engine}, max_steps=2)

    with pytest.raises(UsageError, match=r"differ from the trainer's by \S+ nats .*probe_max_abs"):
        trainer.train()
    assert trainer.state.global_step == 0


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_turn_that_is_not_a_number_is_not_overlooked(order: tuple[int, int]):
    """Whichever of them it is; no limit allows it."""
    turns = torch.tensor([0.1, 0.2]), torch.tensor([0.1, float("nan")])
    found = Difference.of([turns[number] for number in order])

    assert all(map(math.isnan, found))
    assert Difference.of([*turns[:1], torch.tensor([0.0, 0.4])]) == pytest.approx((0.4, 0.2))


def test_what_one_process_cannot_score_is_told_to_the_others(
    make_model: Callable[[], Any], chatty: Renderer, close: list[CopyEngine]
):
    """They would wait for its opinion for ever."""
    told: list[str] = []

    class Told(Ranks):
        def together(self, work: Callable[[], T]) -> T:
            try:
                return work()
            except EngineError as error:
                told.append(str(error))
                raise

    def fail(batch: PackedBatch) -> TokenLogprobs:
        raise EngineError("no such id")

    engine, loop = CopyEngine(make_model()), LoopThread()
    close.append(engine)
    prober = Prober(
        ProbeSettings(), renderer=chatty, score=fail, dtype="float32", device="cpu", padding=False
    )
    with pytest.raises(EngineError):
        prober.after_update(engine, loop, Told(Accelerator(cpu=True)), temperature=1.0)
    loop.close()
    assert told == ["no such id"]


def test_where_nothing_is_compared_nothing_is_found(make_trainer: Make, close: list[CopyEngine]):
    engine = Stubborn(make_trainer().policy)
    close.append(engine)
    make_trainer({"engine": engine}, max_steps=2, probe_every=0).train()


def test_a_step_that_changes_nothing_is_told(
    make_trainer: Make, close: list[CopyEngine], caplog: pytest.LogCaptureFixture
):
    """Sampling would stay on the old policy, and everything would look fine."""
    engine: Any = CopyEngine(make_trainer().policy)
    close.append(engine)
    with caplog.at_level(logging.WARNING):
        make_trainer({"engine": engine}, max_steps=2, learning_rate=1e-30).train()

    assert "none of the tensors has changed" in caplog.text


@pytest.mark.parametrize(
    "settings",
    [
        {"lr_scheduler_type": "linear", "warmup_steps": 1},
        {"reward_weights": {"low": 0.0, "turns": 1.0}},
    ],
    ids=["warm-up", "equal rewards"],
)
def test_a_step_that_was_to_change_nothing_is_not_told(
    make_trainer: Make,
    close: list[CopyEngine],
    caplog: pytest.LogCaptureFixture,
    settings: dict[str, Any],
):
    """At a learning rate or a gradient of 0 the same weights are no news."""
    engine: Any = CopyEngine(make_trainer().policy)
    close.append(engine)
    with caplog.at_level(logging.WARNING):
        make_trainer({"engine": engine}, max_steps=2, probe_every=0, **settings).train()

    assert engine.policy_version == 2
    assert "none of the tensors has changed" not in caplog.text


def test_an_engine_in_half_precision_is_allowed_to_round(
    make_trainer: Make, make_model: Callable[[], Any], close: list[CopyEngine]
):
    """The trainer's own precision says nothing about that of the engine; other weights are seen."""
    model = make_model()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(0.5)
    other = copy.deepcopy(model)
    with torch.no_grad():
        other.model.layers[0].mlp.down_proj.weight.mul_(-4.0)
    half, wrong = CopyEngine(model.bfloat16()), Stubborn(other.bfloat16())
    close += [half, wrong]
    given = {"model": copy.deepcopy(model).float()}
    trainer = make_trainer(given | {"engine": half}, max_steps=1)
    trainer.train()

    (row,) = [row for row in trainer.state.log_history if "sync/probe_max" in row]
    assert row["sync/probe_max"] > 1e-3
    assert row["sync/probe_mean"] < 0.05
    expected = "probe_mean_abs allows .* a trainer in float32 and an engine in bfloat16"
    with pytest.raises(UsageError, match=expected):
        make_trainer({"model": copy.deepcopy(model).float(), "engine": wrong}, max_steps=1).train()
