"""The trainer as its users meet it: learning, resuming, saving, logs, callbacks, held-out tasks."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from trainer_kit import steps, weights
from transformers import TrainerCallback

from agentgym.errors import ConfigError
from agentgym.trainer.callbacks import AgentCallback
from agentgym.trainer.grpo import AgentGRPOTrainer
from agentgym.trainer.setup import tokenizer_of
from agentgym.trajectory import RolloutOutput

MakeTrainer = Callable[..., AgentGRPOTrainer]
_TRUST = {"trust_remote_code": True, "revision": "main"}


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
        (tmp_path / "out" / "checkpoint-1" / "windows.json").unlink()  # of an earlier version

        trainer = make_trainer(max_steps=4, num_iterations=2)
        with pytest.raises(ConfigError, match="step 1 lies inside a window of 2"):
            trainer.train(resume_from_checkpoint=str(tmp_path / "out" / "checkpoint-1"))

    def test_a_checkpoint_of_other_windows_is_not_resumed(
        self, make_trainer: MakeTrainer, tmp_path: Path
    ):
        """Its step would mean other tasks: some would be skipped, or played again."""
        make_trainer(max_steps=1, save_strategy="steps", save_steps=1).train()

        trainer = make_trainer(max_steps=4, per_device_train_batch_size=16)
        with pytest.raises(ConfigError, match=r"2 groups per window .* this run has 4 per 1"):
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
        share = settings | {"save_strategy": "steps", "save_steps": 0.25, "num_train_epochs": 1}
        with pytest.raises(ConfigError, match=r"save_steps=0\.25 is no multiple of 2"):
            make_trainer({"train_dataset": rows}, **share)

    def test_completions_can_be_logged_as_trl_does(self, make_trainer: MakeTrainer, tmp_path: Path):
        """The parquet table of `log_completions`."""
        make_trainer(log_completions=True, num_completions_to_print=0).train()

        [table] = (tmp_path / "out" / "completions").glob("*.parquet")
        assert table.stat().st_size > 0


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
