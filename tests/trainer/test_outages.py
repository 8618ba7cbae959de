"""What the engine needs is gone, or came back with other weights: no task is to blame for it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from staleness_kit import OwnWeights, Windows
from trainer_kit import steps

from agentgym.engines.base import Generation, Sampling
from agentgym.engines.weights import Weights, WeightsLostError
from agentgym.errors import AgentGymError, OutageError
from agentgym.trainer.grpo import AgentGRPOTrainer

MakeTrainer = Callable[..., AgentGRPOTrainer]


class Fragile(OwnWeights):
    """Breaks at a turn of a window, for as long as it does not get weights again.

    Args:
        error: what every turn meets then.
        turn: which turn breaks it, from 0.
    """

    def __init__(self, error: AgentGymError, turn: int) -> None:
        super().__init__()
        self._error = error
        self._turns_left = turn
        self._is_broken = False

    async def generate(
        self, prompt_ids: tuple[int, ...], sampling: Sampling, *, session: str
    ) -> Generation:
        self._is_broken = self._is_broken or self._turns_left == 0
        self._turns_left -= 1
        if self._is_broken:
            raise self._error
        return await super().generate(prompt_ids, sampling, session=session)

    async def update_weights(self, weights: Weights | None = None) -> int:
        self._is_broken = False
        return await super().update_weights(weights)


def run(make_trainer: MakeTrainer, engine: OwnWeights, **args: Any) -> tuple[Any, Windows]:
    kept = Windows()
    trainer = make_trainer(
        {"engine": engine, "callbacks": [kept]}, max_steps=3, probe_every=0, **args
    )
    trainer.train()
    return trainer, kept


def played(kept: Windows) -> list[list[tuple[Any, ...]]]:
    """What each window was."""
    return [[(o.request_id, o.messages, o.rewards) for o in window] for window in kept.windows]


@pytest.mark.parametrize("staleness", [0, 1])
def test_an_outage_stops_the_run_whatever_part_of_the_window_is_left(
    make_trainer: MakeTrainer, staleness: int
) -> None:
    """The trajectories that were over are short ones: training on them alone would be biased."""
    engine = Fragile(OutageError("the server is gone"), turn=8 * 3 + 20)

    with pytest.raises(OutageError, match="the server is gone"):
        run(make_trainer, engine, max_failed_fraction=0.9, staleness=staleness)


@pytest.mark.parametrize("staleness", [0, 1])
def test_an_engine_that_was_started_anew_gets_its_weights_and_plays_the_window_again(
    make_trainer: MakeTrainer, staleness: int, caplog: pytest.LogCaptureFixture
) -> None:
    """The same window as if nothing had been."""
    calm, whole = run(make_trainer, OwnWeights(), staleness=staleness)
    engine = Fragile(WeightsLostError("it was restarted"), turn=8 * 3 + 20)
    trainer, kept = run(make_trainer, engine, staleness=staleness)

    assert played(kept) == played(whole)
    assert [row["reward"] for row in steps(trainer)] == [row["reward"] for row in steps(calm)]
    assert engine.received == [1, 2, 3, 4]
    assert (
        "it was restarted; they are sent again, and what was played is played anew" in caplog.text
    )


def test_an_engine_that_loses_its_weights_time_and_again_stops_the_run(
    make_trainer: MakeTrainer,
) -> None:
    class Loses(OwnWeights):
        async def generate(self, *args: Any, **kwargs: Any) -> Generation:
            raise WeightsLostError("it was restarted")

    with pytest.raises(WeightsLostError):
        run(make_trainer, Loses())


def test_a_resumed_run_goes_on_with_its_versions(make_trainer: MakeTrainer, tmp_path: Path) -> None:
    """An engine that was started anew counts from 0; the run's own records must not."""
    first = OwnWeights()
    _, kept = run(make_trainer, first, save_strategy="steps", save_steps=2)
    second, again = OwnWeights(), Windows()
    trainer = make_trainer(
        {"engine": second, "callbacks": [again]},
        max_steps=3,
        probe_every=0,
        output_dir=str(tmp_path),
    )
    trainer.train(resume_from_checkpoint=str(tmp_path / "out" / "checkpoint-2"))

    assert first.received == [1, 2, 3]
    assert second.received == [3]
    assert played(again) == played(kept)[2:]
    (window,) = again.windows
    assert {version for output in window for version in output.policy_versions} == {3}


def test_held_out_tasks_are_played_again_too(make_trainer: MakeTrainer) -> None:
    """They may take as long as training, and come last."""
    engine = Fragile(WeightsLostError("it was restarted"), turn=5)
    calm = make_trainer({"engine": OwnWeights()}, probe_every=0).evaluate_env(num_tasks=4)
    figures = make_trainer({"engine": engine}, probe_every=0).evaluate_env(num_tasks=4)

    assert figures["reward"] == calm["reward"]
    assert engine.received == [1, 2]
