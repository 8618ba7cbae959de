"""The trainer as its users meet it: rewards, references, callbacks, checkpoints, failures."""

import asyncio
import json
import os
import signal
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForSequenceClassification,
    TrainerCallback,
)

from agentgym.engines.scripted import CallableEngine
from agentgym.engines.transformers import transformers_engine
from agentgym.envs import Env
from agentgym.errors import ConfigError, NotRegisteredError, UsageError
from agentgym.registry import ADVANTAGES, LOSSES
from agentgym.rollout.collect import TooManyFailuresError
from agentgym.rollout.gym_scheduler import GymScheduler
from agentgym.trainer import trl_contract
from agentgym.trainer.callbacks import AgentCallback
from agentgym.trainer.grpo import AgentGRPOTrainer
from agentgym.trainer.setup import tokenizer_of
from agentgym.trajectory import RolloutOutput, StopReason

MakeTrainer = Callable[..., AgentGRPOTrainer]
_TRUST = {"trust_remote_code": True, "revision": "main"}


def weights(trainer: AgentGRPOTrainer) -> torch.Tensor:
    """[P] a copy of all parameters."""
    return torch.cat([p.detach().flatten() for p in trainer.policy.parameters()]).clone()


def steps(trainer: AgentGRPOTrainer) -> list[dict[str, float]]:
    """The log of every optimizer step."""
    return [row for row in trainer.state.log_history if "step_time" in row]


def length(output: RolloutOutput) -> float:
    """A reward function of the whole trajectory."""
    return len(output.messages[-2].content) / 10


class TestRewards:
    def test_functions_and_env_are_columns_weighed_by_name(self, make_trainer: MakeTrainer):
        """One table of rewards, whoever gave them."""
        seen: list[RolloutOutput] = []

        class Keep(AgentCallback):
            def on_window(self, *args: Any, outputs: Any, **rest: Any) -> None:
                seen.extend(outputs)

        trainer = make_trainer(
            {"rewards": [length], "callbacks": [Keep()]}, reward_weights={"length": 2.0, "low": 0.0}
        )
        trainer.train()

        scored = next(output for output in seen if output.rewards.get("low") is not None)
        expected = 0.25 * scored.rewards["turns"] + 2.0 * scored.rewards["length"]
        assert scored.reward == pytest.approx(expected)
        assert {"rewards/low/mean", "rewards/turns/mean", "rewards/length/mean"} <= set(
            steps(trainer)[0]
        )

    def test_a_weight_for_an_unknown_reward_is_refused(self, make_trainer: MakeTrainer):
        """A typo would otherwise train on something else."""
        with pytest.raises(ConfigError, match="'lenght', but the rewards are low, turns, length"):
            make_trainer({"rewards": [length]}, reward_weights={"lenght": 1.0})

    def test_a_weight_for_a_reward_that_never_comes_stops_the_first_window(
        self, make_trainer: MakeTrainer, words_env: type[Env]
    ):
        """Where the env does not say what it gives, its first trajectories do."""

        class Silent(words_env):  # type: ignore[misc,valid-type]
            reward_weights: dict[str, float] = {}

        wrong = {"low": 1.0, "trns": 0.5, "length": 1.0}
        trainer = make_trainer({"env": Silent, "rewards": [length]}, reward_weights=wrong)
        before = weights(trainer)
        message = "names 'trns', but the rewards are length, low, turns"
        with pytest.raises(ConfigError, match=message):
            trainer.train()
        with pytest.raises(ConfigError, match=message):
            trainer.evaluate_env()
        assert torch.equal(before, weights(trainer))

        right = {"low": 1.0, "turns": 0.5}
        make_trainer({"env": Silent, "rewards": [length]}, reward_weights=right).train()

    def test_two_rewards_of_one_name_are_refused(self, make_trainer: MakeTrainer):
        """Whether they come as functions or from TRL's side."""

        def low(prompts: Any, completions: Any, **columns: Any) -> list[float]:
            return [0.0] * len(prompts)

        with pytest.raises(ConfigError, match="two rewards are called 'low'"):
            make_trainer({"reward_funcs": low})

    def test_reward_functions_in_trls_convention(self, make_trainer: MakeTrainer):
        """Prompts, completions, ids, the task's columns and the trainer's state, to the letter."""
        calls: list[dict[str, Any]] = []

        def in_numbers(
            prompts: Any, completions: Any, completion_ids: Any, number: Any, **rest: Any
        ) -> list[float | None]:
            step = rest["trainer_state"].global_step
            calls.append({"prompts": prompts, "completions": completions, "step": step})
            return [
                None if n is None else float(len(ids))
                for n, ids in zip(number, completion_ids, strict=True)
            ]

        async def always_one(prompts: Any, **columns: Any) -> list[float]:
            columns["log_metric"]("mine", 3.0)
            return [1.0] * len(prompts)

        trainer = make_trainer({"reward_funcs": [in_numbers, always_one]}, max_steps=2)
        trainer.train()

        [first, second] = calls
        assert first["prompts"][0][0]["role"] == "user"
        assert first["completions"][0][0]["role"] == "assistant"
        assert second["step"] == 1
        log = steps(trainer)[0]
        assert log["rewards/always_one/mean"] == 1.0
        assert log["rewards/in_numbers/mean"] > 3
        assert log["mine"] == 3.0

    def test_a_broken_trl_reward_leaves_its_column_unscored(self, make_trainer: MakeTrainer):
        """TRL would end the run; here it is counted."""

        def broken(prompts: Any, **columns: Any) -> list[float]:
            raise RuntimeError("no judge")

        trainer = make_trainer({"reward_funcs": broken})
        trainer.train()

        log = steps(trainer)[0]
        assert log["rewards/broken/errors"] == 8
        assert "rewards/broken/mean" not in log
        assert log["unscored"] == 0

    def test_text_from_a_trl_reward_is_no_reward(self, make_trainer: MakeTrainer):
        """A grader's unparsed answer: said and counted, neither scored nor a crash in torch."""

        def text(prompts: Any, **columns: Any) -> list[Any]:
            return ["1"] * len(prompts)

        trainer = make_trainer({"reward_funcs": text})
        trainer.train()

        assert steps(trainer)[0]["rewards/text/errors"] == 8

    def test_a_reward_model_is_a_reward(
        self, make_trainer: MakeTrainer, tokenizer: PreTrainedTokenizerFast
    ):
        """TRL's own set-up and call of `AutoModelForSequenceClassification`s."""
        config = Qwen3Config(
            vocab_size=len(tokenizer),
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=1,
            num_key_value_heads=1,
            head_dim=16,
            intermediate_size=16,
            num_labels=1,
            pad_token_id=tokenizer.pad_token_id,
        )
        config.name_or_path = "me/judge"
        judge = Qwen3ForSequenceClassification(config)
        trainer = make_trainer(
            {"reward_funcs": [judge], "reward_processing_classes": [tokenizer]},
            reward_weights={"judge": 0.5},
        )
        trainer.train()

        assert steps(trainer)[0]["rewards/judge/std"] > 0

    def test_registered_names_are_looked_up(self, make_trainer: MakeTrainer):
        """And unknown ones refused before anything is loaded."""
        with pytest.raises(NotRegisteredError, match="no reward is registered as 'nice'"):
            make_trainer({"rewards": ["nice"]})


class TestReferenceAndAdapters:
    def test_kl_to_a_reference_grows_as_the_policy_moves(
        self, make_trainer: MakeTrainer, model_folder: str
    ):
        """The reference stays where the policy started."""
        trainer = make_trainer({"model": model_folder}, beta=0.01, max_steps=3)
        trainer.train()

        kl = [row["kl"] for row in steps(trainer)]
        assert kl[0] == pytest.approx(0.0, abs=1e-6)
        assert kl[2] > 1e-4

    def test_a_reference_without_a_place_is_refused(self, make_trainer: MakeTrainer):
        """TRL would try to load a model of the name ''."""
        with pytest.raises(ConfigError, match=r"beta=0\.1 needs a reference"):
            make_trainer(beta=0.1)

    def test_an_adapter_trains_and_its_base_is_the_reference(self, make_trainer: MakeTrainer):
        """No second model: the reference is the policy without its adapter."""
        peft = pytest.importorskip("peft")
        lora = peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
        trainer = make_trainer({"peft_config": lora}, beta=0.01, max_steps=3)
        frozen = {n: p.clone() for n, p in trainer.policy.named_parameters() if "lora" not in n}
        trainer.train()

        kl = [row["kl"] for row in steps(trainer)]
        assert kl[0] == pytest.approx(0.0, abs=1e-6)
        assert kl[2] > 1e-6
        assert steps(trainer)[0]["sampling/logp_diff_max"] <= 1e-4
        after = dict(trainer.policy.named_parameters())
        assert all(torch.equal(after[name], value) for name, value in frozen.items())

    def test_importance_ratio_per_sequence(self, make_trainer: MakeTrainer):
        """GSPO's setting runs through the same path."""
        trainer = make_trainer(
            importance_sampling_level="sequence", loss_type="grpo", num_iterations=2, max_steps=2
        )
        trainer.train()

        assert steps(trainer)[0]["ratio_mean"] == pytest.approx(1.0, abs=1e-6)


class TestLoop:
    def test_it_learns_what_is_paid(self, make_trainer: MakeTrainer):
        """The whole path has the right sign."""

        def few_odd_tokens(output: RolloutOutput) -> float:
            ids = [t for s in output.segments if s.source == "sampled" for t in s.ids]
            return 1.0 - sum(token % 2 for token in ids) / len(ids)

        trainer = make_trainer(
            {"rewards": [few_odd_tokens]},
            max_steps=8,
            per_device_train_batch_size=32,
            num_generations=8,
            learning_rate=2e-2,
            reward_weights={"low": 0.0, "turns": 0.0},
        )
        trainer.train()

        rewards = [row["reward"] for row in steps(trainer)]
        assert sum(rewards[-3:]) / 3 > sum(rewards[:2]) / 2 + 0.15

    def test_the_same_seed_gives_the_same_run(self, make_trainer: MakeTrainer):
        """To the bit, on one machine."""
        runs = [make_trainer(max_steps=3) for _ in range(2)]
        for run in runs:
            run.train()

        assert torch.equal(weights(runs[0]), weights(runs[1]))

    def test_resuming_from_a_checkpoint_equals_the_uninterrupted_run(
        self, make_trainer: MakeTrainer, tmp_path: Path
    ):
        """Invariant 9, between windows: tasks, seeds, optimizer and schedule go on."""
        common = {
            "max_steps": 6,
            "num_iterations": 2,
            "save_strategy": "steps",
            "save_steps": 2,
            "lr_scheduler_type": "linear",
        }
        whole = make_trainer(**common)
        whole.train()
        resumed = make_trainer(**common, output_dir=str(tmp_path / "again"))
        resumed.train(resume_from_checkpoint=str(tmp_path / "out" / "checkpoint-2"))

        assert torch.allclose(weights(whole), weights(resumed), atol=1e-7)
        rewards = [[row["reward"] for row in steps(t) if "reward" in row] for t in (whole, resumed)]
        assert rewards[0] == rewards[1]

    def test_a_checkpoint_inside_a_window_is_not_resumed(
        self, make_trainer: MakeTrainer, tmp_path: Path
    ):
        """Its trajectories are gone; training on others would be another run."""
        make_trainer(max_steps=1, save_strategy="steps", save_steps=1).train()

        trainer = make_trainer(max_steps=4, num_iterations=2)
        with pytest.raises(ConfigError, match="step 1 lies inside a window of 2"):
            trainer.train(resume_from_checkpoint=str(tmp_path / "out" / "checkpoint-1"))

    def test_a_saved_policy_can_be_loaded_again(self, make_trainer: MakeTrainer, tmp_path: Path):
        """Model and tokenizer, by Transformers' own names."""
        trainer = make_trainer()
        trainer.train()
        trainer.save_model(str(tmp_path / "saved"))

        again = make_trainer({"model": str(tmp_path / "saved")})
        assert torch.equal(weights(trainer), weights(again))

    def test_code_of_a_tokenizer_runs_if_the_model_s_may(self, make_args: Any, model_folder: str):
        """What TRL reads of the settings for the model holds for its tokenizer."""
        folder = Path(model_folder)
        code = "from transformers import PreTrainedTokenizerFast\n"
        (folder / "mine.py").write_text(code + "class Mine(PreTrainedTokenizerFast): pass\n")
        settings = json.loads((folder / "tokenizer_config.json").read_text())
        settings |= {"tokenizer_class": "Mine", "auto_map": {"AutoTokenizer": [None, "mine.Mine"]}}
        (folder / "tokenizer_config.json").write_text(json.dumps(settings))

        assert type(tokenizer_of(model_folder, None, make_args())).__name__ != "Mine"
        for trusting in ({"trust_remote_code": True}, {"model_init_kwargs": _TRUST}):
            tokenizer = tokenizer_of(model_folder, None, make_args(**trusting))
            assert type(tokenizer).__name__ == "Mine"

    def test_hugging_face_callbacks_see_every_optimizer_step(self, make_trainer: MakeTrainer):
        """Once per step, however many micro-batches and micro-steps it has."""
        events: list[str] = []

        class Watch(TrainerCallback):
            def on_step_begin(self, *args: Any, **kwargs: Any) -> None:
                events.append("begin")

            def on_optimizer_step(self, *args: Any, **kwargs: Any) -> None:
                events.append("optimizer")

            def on_step_end(self, *args: Any, **kwargs: Any) -> None:
                events.append("end")

        trainer = make_trainer(
            {"callbacks": [Watch()]},
            max_steps=2,
            per_device_train_batch_size=4,
            gradient_accumulation_steps=2,
            token_budget=64,
        )
        trainer.train()

        assert events == ["begin", "optimizer", "end"] * 2

    def test_trls_metrics_keep_their_names(self, make_trainer: MakeTrainer):
        """Dashboards made for TRL go on working; what TRL lacks stands beside it."""
        trainer = make_trainer(max_steps=2)
        trainer.train()

        trls = {
            "reward", "reward_std", "frac_reward_zero_std", "rewards/low/mean", "rewards/low/std",
            "completions/mean_length", "completions/min_length", "completions/max_length",
            "completions/clipped_ratio", "num_tokens", "entropy", "step_time", "loss", "grad_norm",
            "learning_rate", "clip_ratio/low_mean", "clip_ratio/low_min", "clip_ratio/high_mean",
            "clip_ratio/high_max", "clip_ratio/region_mean", "tools/call_frequency",
        }  # fmt: skip
        ours = {
            "turns/mean", "unscored", "failed", "duplicate_fraction", "useful_token_fraction",
            "time/sample", "time/env", "time/reward", "time/update", "time/logprob", "time/sync",
            "time/rollout", "ratio_mean", "sampling/logp_diff_mean",
        }  # fmt: skip
        first, second = steps(trainer)
        assert trls | ours <= set(first)
        stops = [value for name, value in first.items() if name.startswith("stop/")]
        assert sum(stops) == pytest.approx(1.0)
        assert second["num_tokens"] > first["num_tokens"]

    def test_rows_of_a_dataset_are_tasks(self, make_trainer: MakeTrainer):
        """A finite set ends the run by epochs; nothing says `max_steps`."""
        rows = [{"id": f"row{i}", "number": i} for i in range(4)]
        played: list[str] = []

        class Keep(AgentCallback):
            def on_trajectory(self, output: RolloutOutput) -> None:
                played.append(output.task_id)

        trainer = make_trainer(
            {"train_dataset": rows, "callbacks": [Keep()]}, max_steps=-1, num_train_epochs=2
        )
        trainer.train()

        assert trainer.state.global_step == 4
        assert sorted(played) == sorted(f"row{i}" for i in range(4) for _ in range(8))

    def test_tasks_without_end_need_a_number_of_steps(self, make_trainer: MakeTrainer):
        """Otherwise nobody would know when an epoch is over."""
        with pytest.raises(ConfigError, match="set max_steps"):
            make_trainer(max_steps=-1)

    def test_epochs_are_whole_windows(self, make_trainer: MakeTrainer):
        """A part of an epoch that ends inside a window is refused like such a `max_steps`."""
        rows = [{"id": f"row{i}", "number": i} for i in range(4)]
        settings = {"max_steps": -1, "num_iterations": 2}

        assert make_trainer({"train_dataset": rows}, num_train_epochs=0.5, **settings)
        with pytest.raises(ConfigError, match=r"num_train_epochs=0\.7 .* 3 .* 2"):
            make_trainer({"train_dataset": rows}, num_train_epochs=0.7, **settings)

    def test_completions_can_be_logged_as_trl_does(self, make_trainer: MakeTrainer, tmp_path: Path):
        """The parquet table of `log_completions`."""
        make_trainer(log_completions=True, num_completions_to_print=0).train()

        [table] = (tmp_path / "out" / "completions").glob("*.parquet")
        assert table.stat().st_size > 0


class TestExtensions:
    def test_an_advantage_estimator_from_a_plugin(self, make_trainer: MakeTrainer):
        """A plain function under a name."""

        def positive_only(rewards: torch.Tensor, *, groups: Any, scale: Any) -> torch.Tensor:
            return (rewards - rewards.mean()).clamp(min=0.0)

        ADVANTAGES.register("positive_only", positive_only)
        seen: list[float] = []

        class Keep(AgentCallback):
            def on_window(self, *args: Any, advantages: Any, **rest: Any) -> None:
                seen.extend(advantages)

        make_trainer({"callbacks": [Keep()]}, advantage_estimator="positive_only").train()
        assert min(seen) == 0.0 < max(seen)

    def test_a_loss_from_a_plugin(self, make_trainer: MakeTrainer):
        """A plain function of flat tokens."""
        calls: list[int] = []
        dapo = LOSSES.get("dapo")

        def counted(tokens: Any, settings: Any, normalizer: Any) -> Any:
            calls.append(normalizer.num_tokens)
            return dapo(tokens, settings, normalizer)

        LOSSES.register("counted", counted)
        make_trainer(loss_type="counted").train()
        assert len(calls) == 1

    def test_a_scheduler_of_ones_own(self, make_trainer: MakeTrainer):
        """A class derived from the env's referee, with one hook changed."""

        class OneTurn(GymScheduler):
            def check_finished(self, trajectory: Any, turn: Any) -> StopReason | None:
                return StopReason.TRUNCATED

        trainer = make_trainer({"scheduler": OneTurn})
        trainer.train()
        assert steps(trainer)[0]["turns/max"] == 1

    def test_the_installed_trl_is_checked(self):
        """A method that TRL renames must be noticed when the trainer is imported."""
        trl_contract.check()
        with pytest.raises(ImportError, match=r"needs trl>=1\.16,<1\.17"):
            trl_contract.check("1.17.0")
        with pytest.raises(ImportError, match="has no '_no_such'"):
            trl_contract.check(methods=("_no_such",))


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


class TestEvaluation:
    def test_held_out_tasks_are_played_with_an_interval(self, make_trainer: MakeTrainer):
        """The same tasks and seeds every time, so that before and after compare."""
        trainer = make_trainer()
        first, second = trainer.evaluate_env(), trainer.evaluate_env()

        assert first == second
        assert first["num_tasks"] == first["num_scored"] == 4
        assert first["reward_low"] < first["reward"] < first["reward_high"]
        assert trainer.evaluate_env(num_tasks=2, temperature=0.0)["num_tasks"] == 2

    def test_evaluation_does_not_change_what_is_trained(self, make_trainer: MakeTrainer):
        """No random number, counter or cache is shared."""
        plain, evaluated = (
            make_trainer(max_steps=3),
            make_trainer(max_steps=3, eval_strategy="steps", eval_steps=1),
        )
        plain.train()
        evaluated.train()

        assert torch.equal(weights(plain), weights(evaluated))
        evals = [row for row in evaluated.state.log_history if "eval_reward" in row]
        assert len(evals) == 3
        assert all("reward" not in row for row in evals)

    def test_the_best_checkpoint_is_the_one_with_the_highest_reward(
        self, make_trainer: MakeTrainer, tmp_path: Path
    ):
        """Hugging Face's bookkeeping reads `eval_reward`."""
        trainer = make_trainer(
            max_steps=2,
            eval_strategy="steps",
            eval_steps=1,
            save_strategy="steps",
            save_steps=1,
            load_best_model_at_end=True,
        )
        trainer.train()

        rewards = [r["eval_reward"] for r in trainer.state.log_history if "eval_reward" in r]
        assert trainer.state.best_metric == max(rewards)
        saved = json.loads((tmp_path / "out/checkpoint-2/trainer_state.json").read_text())
        assert saved["best_metric"] == max(rewards)
