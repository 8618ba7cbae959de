"""Rewards of the trainer: functions, TRL's convention, reward models, names and weights."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from trainer_kit import steps, weights
from transformers import (
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForSequenceClassification,
)

from agentgym.envs import Env
from agentgym.errors import ConfigError, NotRegisteredError
from agentgym.trainer.callbacks import AgentCallback
from agentgym.trainer.grpo import AgentGRPOTrainer
from agentgym.trajectory import RolloutOutput

MakeTrainer = Callable[..., AgentGRPOTrainer]


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

    def test_a_trl_reward_among_those_of_trajectories_is_refused(self, make_trainer: MakeTrainer):
        """It would fail on every trajectory, and the run would go on without it."""

        def brief(completions: Any, **columns: Any) -> list[float]:
            return [0.0] * len(completions)

        for given in ([brief], {"short": brief}):
            with pytest.raises(ConfigError, match=r"takes 'completions'.*reward_funcs="):
                make_trainer({"rewards": given})

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

    def test_a_broken_trl_reward_leaves_its_column_unscored(
        self, make_trainer: MakeTrainer, caplog: pytest.LogCaptureFixture
    ):
        """TRL would end the run; here it is counted, and told."""

        def broken(prompts: Any, **columns: Any) -> list[float]:
            raise RuntimeError("no judge")

        trainer = make_trainer({"reward_funcs": broken}, max_steps=2)
        trainer.train()

        log = steps(trainer)[0]
        assert log["rewards/broken/errors"] == 8
        assert "rewards/broken/mean" not in log
        assert log["unscored"] == 0
        [told] = [r.message for r in caplog.records if "every trajectory" in r.message]
        assert told.startswith("reward 'broken' failed on every trajectory and counts for none: ")
        assert told.endswith("no judge")

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
