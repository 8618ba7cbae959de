"""Windows played while an earlier one is trained on: real overlap, bounded age, clean ends."""

import asyncio
import os
import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from staleness_kit import OwnWeights, Windows
from trainer_kit import steps
from transformers import TrainerCallback

from agentgym.engines.scripted import CallableEngine
from agentgym.envs import Env
from agentgym.errors import AgentGymError, ConfigError, EngineError, UsageError
from agentgym.messages import user
from agentgym.rollout.collect import TooManyFailuresError
from agentgym.tokens import Segment
from agentgym.trainer.ages import Ages, Staleness
from agentgym.trainer.grpo import AgentGRPOTrainer
from agentgym.trajectory import RolloutOutput, StopReason

MakeTrainer = Callable[..., AgentGRPOTrainer]
PATIENCE_S = 30.0


class WhileTraining(TrainerCallback):
    """Does something while the weights of a step are about to change."""

    def __init__(self, do: Callable[[int], None]) -> None:
        self._do = do

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._do(state.global_step)


class TestOverlap:
    def test_the_next_window_is_played_while_one_is_trained_on(
        self, make_trainer: MakeTrainer, words_env: type[Env]
    ):
        """Each waits for the other to have begun, which only ends if both are on at once."""
        training, playing = [[threading.Event() for _ in range(4)] for _ in range(2)]

        class Meets(words_env):  # type: ignore[misc,valid-type]
            def step(self, action: Any) -> Any:
                number = self.task_number // 2
                if number:
                    playing[number].set()
                    assert training[number - 1].wait(PATIENCE_S)
                return super().step(action)

            def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
                self.task_number = options["task"]["number"]
                return super().reset(seed=seed, options=options)

        def meet(step: int) -> None:
            training[step].set()
            assert step == 3 or playing[step + 1].wait(PATIENCE_S), f"window {step + 1} waits"

        callbacks = [WhileTraining(meet)]
        make_trainer(
            {"env": Meets, "engine": OwnWeights(), "callbacks": callbacks},
            max_steps=4,
            staleness=1,
            probe_every=0,
        ).train()
        assert all(event.is_set() for event in playing[1:])

    @pytest.mark.parametrize("staleness", [1, 3])
    def test_what_a_window_plays_does_not_depend_on_it(
        self, make_trainer: MakeTrainer, staleness: int
    ):
        """The same tasks, groups and sampling seeds in the same windows."""
        played = []
        for value in (0, staleness):
            engine, kept = OwnWeights(), Windows()
            make_trainer(
                {"engine": engine, "callbacks": [kept]},
                max_steps=4,
                staleness=value,
                probe_every=0,
            ).train()
            tasks = [[(o.group_id, o.task_id, o.seed) for o in window] for window in kept.windows]
            played.append((tasks, engine.seeds))

        assert len(played[0][0]) == 4
        assert played[0] == played[1]

    def test_evaluation_between_windows_is_of_the_current_weights(self, make_trainer: MakeTrainer):
        """And the windows that are on their way go on."""
        engine, kept = OwnWeights(), Windows()
        trainer = make_trainer(
            {"engine": engine, "callbacks": [kept]},
            max_steps=3,
            staleness=2,
            probe_every=0,
            eval_strategy="steps",
            eval_steps=1,
        )
        trainer.train()

        versions = [{v for o in outputs for v in o.policy_versions} for outputs in kept.evaluations]
        assert [len(found) for found in versions] == [1, 1, 1]
        assert versions[0] < versions[1] | versions[0]
        assert sorted(v for found in versions for v in found) == engine.received[1:]


class TestCopy:
    """Without an engine that is handed in, a copy of the model plays."""

    @pytest.mark.slow
    def test_it_learns_what_is_paid_while_it_plays(self, make_trainer: MakeTrainer):
        """From tokens of the policy before."""

        def few_odd_tokens(output: RolloutOutput) -> float:
            ids = [t for s in output.segments if s.source == "sampled" for t in s.ids]
            return 1.0 - sum(token % 2 for token in ids) / len(ids)

        trainer = make_trainer(
            {"rewards": [few_odd_tokens]},
            max_steps=10,
            per_device_train_batch_size=32,
            num_generations=8,
            learning_rate=2e-2,
            staleness=1,
            reward_weights={"low": 0.0, "turns": 0.0},
        )
        trainer.train()

        log = steps(trainer)
        rewards = [row["reward"] for row in log]
        assert sum(rewards[-3:]) / 3 > sum(rewards[:2]) / 2 + 0.15
        assert max(row["staleness/max"] for row in log) == 1
        assert log[0]["sync/probe_max"] <= 1e-4
        assert log[1]["sync/bytes"] > 0


class TestAge:
    @pytest.mark.parametrize("sync_every", ["window", "step"])
    def test_no_token_is_older_than_allowed(self, make_trainer: MakeTrainer, sync_every: str):
        """Two windows of two optimizer steps are four updates at most."""
        engine = OwnWeights()
        trainer = make_trainer(
            {"engine": engine},
            max_steps=8,
            steps_per_generation=2,
            per_device_train_batch_size=4,
            staleness=2,
            sync_every=sync_every,
            probe_every=0,
        )
        trainer.train()

        ages = [row["staleness/max"] for row in steps(trainer) if "staleness/max" in row]
        assert ages[0] == 0
        assert len(ages) == 4
        assert 0 < max(ages) <= 4
        assert len(engine.received) == (8 if sync_every == "step" else 4)
        assert engine.received == sorted(set(engine.received))

    @given(st.lists(st.sampled_from(["update", "push"]), max_size=30), st.integers(0, 5))
    def test_an_age_is_the_number_of_updates_since_the_push(self, events: list[str], bound: int):
        """Whatever comes in between, and what is older than the bound is an error."""
        ages, num_updates, at_push = Ages(bound), 0, 0
        ages.pushed(0)
        version = 0
        for event in events:
            if event == "update":
                ages.updated()
                num_updates += 1
            else:
                version, at_push = version + 1, num_updates
                ages.pushed(version)

        age = num_updates - at_push
        sampled = output(version, ())
        if age > bound:
            with pytest.raises(EngineError, match="missed an update"):
                ages.of([sampled], version, max_age=bound)
        else:
            assert ages.of([sampled], version, max_age=bound) == Staleness(3 * age, 3, age)

    def test_every_token_of_a_turn_has_an_age_of_its_own(self):
        """Weights that came while it was sampled."""
        ages = Ages(4)
        for version in (7, 8, 9):
            ages.pushed(version)
            ages.updated()

        found = ages.of([output(7, (7, 8, 9))], 9, max_age=3)
        assert found == Staleness(3 + 2 + 1, 3, 3)
        assert Staleness.metrics([found, Staleness()]) == {
            "staleness/mean": 2.0,
            "staleness/max": 3.0,
        }
        with pytest.raises(EngineError, match=r"versions \[7, 8, 9\].*at 9, and 2 updates"):
            ages.of([output(7, (7, 8, 9))], 9, max_age=2)

    def test_an_engine_that_missed_an_update_stops_the_run(self, make_trainer: MakeTrainer):
        """Its tokens are of a policy that is gone."""
        trainer = make_trainer(
            {"engine": OwnWeights(keeps_version=True)}, max_steps=3, probe_every=0
        )
        with pytest.raises(EngineError, match=r"version"):
            trainer.train()

    @pytest.mark.parametrize("probe_every", [0, 1])
    def test_an_engine_that_gives_unknown_tokens_stops_the_run(
        self, make_trainer: MakeTrainer, probe_every: int
    ):
        """The model would fail at them: with a trace, and on a GPU for good."""
        engine = OwnWeights(lambda call: [1 << 20, 10])
        trainer = make_trainer({"engine": engine}, max_steps=1, probe_every=probe_every)
        with pytest.raises(EngineError, match="holds token id 1048576; the model knows 0 to"):
            trainer.train()


class TestEnds:
    """Each leaves no env (see conftest), no thread and no window on its way."""

    @pytest.fixture(autouse=True)
    def no_thread_is_left(self):
        before = set(threading.enumerate())
        yield
        left = {t for t in threading.enumerate() if t.name == "agentgym-loop"}
        assert left <= before

    @pytest.mark.parametrize(
        ("error", "expected"),
        [
            (UsageError("misconfigured"), (UsageError, "misconfigured")),
            (RuntimeError("down"), (TooManyFailuresError, r"8/8 .*env_error 8.*down")),
        ],
        ids=["usage", "failures"],
    )
    def test_a_window_that_failed_is_an_error_where_it_is_needed(
        self,
        make_trainer: MakeTrainer,
        words_env: type[Env],
        error: Exception,
        expected: tuple[type[AgentGymError], str],
    ):
        """The windows before it are trained on."""

        class Fails(words_env):  # type: ignore[misc,valid-type]
            def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
                if options["task"]["number"] // 2 == 2:
                    raise error
                return super().reset(seed=seed, options=options)

        trainer = make_trainer(
            {"env": Fails, "engine": OwnWeights()}, max_steps=6, staleness=2, probe_every=0
        )
        with pytest.raises(expected[0], match=expected[1]):
            trainer.train()
        assert trainer.state.global_step == 2

    def test_an_engine_that_dies_is_an_error(self, make_trainer: MakeTrainer):
        """Not a wait without end."""

        def dies(call: Any) -> Any:
            if int(call.session[1:].partition("-")[0]) >= 4:
                raise RuntimeError("no engine")
            return [65, 10]

        trainer = make_trainer(
            {"engine": OwnWeights(dies)}, max_steps=6, staleness=1, probe_every=0
        )
        with pytest.raises(TooManyFailuresError, match=r"api_error 8.*no engine"):
            trainer.train()
        assert trainer.state.global_step == 2

    @pytest.mark.parametrize("how", ["error", "interrupt", "stop"])
    def test_training_that_ends_takes_the_windows_ahead_with_it(
        self, make_trainer: MakeTrainer, words_env: type[Env], how: str
    ):
        """Their envs are closed though they would have gone on for long."""
        playing = threading.Event()

        class Endless(words_env):  # type: ignore[misc,valid-type]
            async def astep(self, action: Any) -> Any:
                if self.number >= 2:
                    playing.set()
                    await asyncio.sleep(600)
                return await super().astep(action)

            def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
                self.number = options["task"]["number"]
                return super().reset(seed=seed, options=options)

        def end(step: int) -> None:
            assert playing.wait(PATIENCE_S)
            if how == "interrupt":
                os.kill(os.getpid(), signal.SIGINT)
            if how == "error":
                raise LookupError("in training")

        class Stop(TrainerCallback):
            def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
                control.should_training_stop = how == "stop"

        trainer = make_trainer(
            {
                "env": Endless,
                "engine": OwnWeights(),
                "callbacks": [WhileTraining(end), Stop()],
            },
            max_steps=4,
            staleness=1,
            probe_every=0,
        )
        with trainer.stage.session():
            if how == "stop":
                trainer.train()
                assert trainer.evaluate_env(num_tasks=1)["num_scored"] == 1
            else:
                kind = {"error": LookupError, "interrupt": KeyboardInterrupt}[how]
                with pytest.raises(kind):
                    trainer.train()


class TestRefusals:
    def test_an_engine_without_weights_of_its_own(self, make_trainer: MakeTrainer):
        """It would sample from weights in the middle of an update."""
        with pytest.raises(ConfigError, match=r"staleness=1 .* CallableEngine has none of its own"):
            make_trainer({"engine": CallableEngine(lambda call: [65])}, staleness=1)

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"staleness": -1}, "staleness=-1 must be at least 0"),
            ({"staleness": 1, "curriculum": True}, "curriculum=True .* staleness=1"),
            ({"sync_every": "step"}, "sync_every='step' .* staleness=0"),
        ],
    )
    def test_settings_that_cannot_work(
        self, make_args: Callable[..., Any], settings: dict[str, Any], message: str
    ):
        """With the value, before anything is loaded."""
        with pytest.raises(ConfigError, match=message):
            make_args(**settings)


def output(version: int, token_versions: tuple[int, ...]) -> RolloutOutput:
    """Three sampled tokens."""
    sampled = Segment(
        ids=(1, 2, 3),
        source="sampled",
        logprobs=(-1.0,) * 3,
        policy_version=version,
        token_versions=token_versions,
    )
    return RolloutOutput(
        request_id="r",
        group_id="g",
        task_id="t",
        env="",
        seed=0,
        messages=(user("?"),),
        segments=(sampled,),
        reward=1.0,
        stop_reason=StopReason.FINAL_ANSWER,
    )
