"""Runs that go wrong: what stops them, what is left out, and that nothing is left behind."""

import asyncio
import os
import signal
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from trainer_kit import steps, weights

from agentgym.engines.scripted import CallableEngine
from agentgym.engines.transformers import transformers_engine
from agentgym.envs import Env
from agentgym.errors import SandboxError, UsageError
from agentgym.registry import LOSSES
from agentgym.rollout.collect import TooManyFailuresError
from agentgym.trainer.grpo import AgentGRPOTrainer

MakeTrainer = Callable[..., AgentGRPOTrainer]


class TestFailures:
    def test_truncated_and_masked_everywhere_is_no_step(self, make_trainer: MakeTrainer):
        """Loss 0, and the optimizer moves nothing, its momentum included."""
        trainer = make_trainer(
            max_steps=2,
            mask_truncated_completions=True,
            max_turn_tokens=1,
            max_turns=1,
            weight_decay=0.1,
        )
        before = weights(trainer)
        trainer.train()

        assert torch.equal(before, weights(trainer))
        log = steps(trainer)[0]
        assert (log["loss"], log["skipped_update"]) == (0.0, 1.0)
        assert log["completions/clipped_ratio"] == 1.0

    def test_a_gradient_that_is_not_finite_stops_the_run(self, make_trainer: MakeTrainer):
        """Before the optimizer has written it into the weights."""
        dapo = LOSSES.get("dapo")

        def steep(tokens: Any, settings: Any, normalizer: Any) -> Any:
            zero = (tokens.logprobs - tokens.logprobs.detach()).square().sum()
            output = dapo(tokens, settings, normalizer)
            return replace(output, loss=output.loss + zero.sqrt())

        LOSSES.register("steep", steep)
        trainer = make_trainer(loss_type="steep")
        before = weights(trainer)
        with pytest.raises(UsageError, match="gradient of step 1 is not finite"):
            trainer.train()
        assert torch.equal(before, weights(trainer))

    def test_a_run_stops_if_too_much_of_a_window_failed(
        self, make_trainer: MakeTrainer, words_env: type[Env]
    ):
        """The message counts the reasons and shows the first error."""

        class Dies(words_env):  # type: ignore[misc,valid-type]
            def step(self, action: Any) -> Any:
                raise RuntimeError("the simulator is down")

        trainer = make_trainer({"env": Dies})
        with pytest.raises(TooManyFailuresError, match=r"8/8 .*env_error 8.*simulator is down"):
            trainer.train()

    def test_a_failed_trajectory_is_left_out_and_counted(
        self, make_trainer: MakeTrainer, words_env: type[Env]
    ):
        """Its group goes on without it."""

        class SometimesDies(words_env):  # type: ignore[misc,valid-type]
            def step(self, action: Any) -> Any:
                if len(action.content) % 4 == 0:
                    raise RuntimeError("died")
                return super().step(action)

        trainer = make_trainer({"env": SometimesDies}, max_failed_fraction=1.0, max_steps=2)
        trainer.train()

        log = steps(trainer)
        assert sum(row["failed"] for row in log) > 0
        assert all(row["failed"] == row["unscored"] for row in log)

    def test_sandboxes_that_fail_are_counted_and_too_many_stop_the_run(
        self, make_trainer: MakeTrainer, words_env: type[Env]
    ):
        """Tried again, then left out; a machine without any is no reason to go on learning."""

        class SometimesDown(words_env):  # type: ignore[misc,valid-type]
            def step(self, action: Any) -> Any:
                if len(action.content) % 4 == 0:
                    raise SandboxError("no sandbox")
                return super().step(action)

        class Down(words_env):  # type: ignore[misc,valid-type]
            def step(self, action: Any) -> Any:
                raise SandboxError("no sandbox")

        trainer = make_trainer({"env": SometimesDown}, max_failed_fraction=1.0, max_steps=2)
        trainer.train()

        log = steps(trainer)
        assert sum(row["stop/infra_error"] for row in log) > 0
        assert sum(row["failed_attempts"] for row in log) > 0
        assert all(row["failed"] == row["unscored"] for row in log)
        with pytest.raises(TooManyFailuresError, match=r"8/8 .*infra_error 8.*no sandbox"):
            make_trainer({"env": Down}).train()

    def test_an_interrupt_leaves_no_thread_and_no_env(
        self, make_trainer: MakeTrainer, words_env: type[Env]
    ):
        """Ctrl-C while episodes are played: everything is closed before it leaves `train`."""
        threads = {thread.name for thread in threading.enumerate()}
        trainer = make_trainer()
        started = threading.Event()

        class Waits(words_env):  # type: ignore[misc,valid-type]
            async def astep(self, action: Any) -> Any:
                started.set()
                await asyncio.sleep(60)

        trainer = make_trainer({"env": Waits})

        def interrupt() -> None:
            started.wait(30)
            os.kill(os.getpid(), signal.SIGINT)

        threading.Thread(target=interrupt, daemon=True).start()
        with pytest.raises(KeyboardInterrupt):
            trainer.train()
        left = {t.name for t in threading.enumerate() if t.name.startswith("agentgym-")}
        assert left <= threads

    def test_an_engine_that_was_handed_in_stays_open(self, make_trainer: MakeTrainer):
        """Its owner closes it."""
        engine = CallableEngine(lambda call: [65 + call.sampling.seed % 26, 10]).recording()
        trainer = make_trainer({"engine": engine}, max_steps=2)
        trainer.train()

        assert len(engine.calls) == 2 * 8 * 3
        assert engine.policy_version == 2
        assert not engine._closed

    def test_a_second_run_does_not_sample_from_caches_of_the_first(self, make_trainer: MakeTrainer):
        """Steps are counted from 0 again, so their number says nothing about the weights."""
        trainer = make_trainer()
        engine = transformers_engine(trainer.policy)
        trainer = make_trainer({"engine": engine, "model": trainer.policy}, learning_rate=0.1)
        for _ in range(2):
            trainer.train()
            assert steps(trainer)[-1]["sampling/logp_diff_max"] <= 1e-4
        asyncio.run(engine.aclose())

    def test_a_checkpoint_that_is_loaded_is_what_plays(
        self, make_trainer: MakeTrainer, tmp_path: Path
    ):
        """Though the step is the one the engine has seen."""
        trainer = make_trainer(
            max_steps=2,
            learning_rate=0.1,
            eval_strategy="steps",
            eval_steps=1,
            save_strategy="steps",
            save_steps=1,
            load_best_model_at_end=True,
            metric_for_best_model="eval_reward",
            greater_is_better=False,
        )
        with trainer.stage.session():
            trainer.train()
            after = trainer.evaluate_env()

        evals = [r["eval_reward"] for r in trainer.state.log_history if "eval_reward" in r]
        assert after["reward"] == pytest.approx(min(evals))
        assert evals[0] != evals[1]
