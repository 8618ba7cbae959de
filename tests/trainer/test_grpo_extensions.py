"""What a trainer can be given: references, adapters, estimators, losses, schedulers."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from trainer_kit import steps
from trl import import_utils

from agentgym.errors import ConfigError
from agentgym.registry import ADVANTAGES, LOSSES
from agentgym.rollout.gym_scheduler import GymScheduler
from agentgym.trainer import trl_contract
from agentgym.trainer.callbacks import AgentCallback
from agentgym.trainer.grpo import AgentGRPOTrainer
from agentgym.trajectory import StopReason

MakeTrainer = Callable[..., AgentGRPOTrainer]


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

    def test_trl_says_nothing_of_the_installed_vllm(
        self, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
    ):
        """TRL does not talk to it here, so its advice is for nobody; other warnings are shown."""
        monkeypatch.setattr(import_utils, "_is_package_available", lambda *_, **__: (True, "99.0"))
        with trl_contract.without_remark_on_vllm():
            import_utils.is_vllm_available()
            warnings.warn("TRL is old", UserWarning, stacklevel=1)
        assert [str(warning.message) for warning in recwarn] == ["TRL is old"]
        with pytest.warns(UserWarning, match="vLLM versions"):
            import_utils.is_vllm_available()

        sources = Path(trl_contract.__file__).parent.rglob("*.py")
        warned = [source.name for source in sources if "trl.trainer.grpo_t" in source.read_text()]
        assert warned == ["trl_contract.py"]
