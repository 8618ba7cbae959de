"""Advantages and losses are TRL's own, wherever both have them: TRL's code runs beside ours."""

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from torch import Tensor
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM
from trl import GRPOConfig, GRPOTrainer

from agentgym.envs.base import weighted_sum
from agentgym.trainer.advantages import compute_advantages
from agentgym.trainer.logprobs import token_logprobs
from agentgym.trainer.losses import FlatTokens, LossSettings, Normalizer, policy_loss
from agentgym.trainer.packing import PackedBatch, Sample, pack

VOCABULARY = 32
GROUP_SIZE = 4
TEMPERATURE = 0.7
WEIGHTS = [0.5, 2.0]

Rollout = dict[str, list[Any]]


class Source:
    """Stands where a rollout engine would: hands TRL the trajectories and rewards of one seed."""

    def __init__(self) -> None:
        self.random = random.Random(0)
        self.rewards: list[list[float | None]] = [[], []]

    def draw(self, seed: int) -> None:
        """Choose another seed; both reward functions leave some trajectories unscored."""
        self.random.seed(seed)
        self.rewards = [
            [None if self.random.random() < 0.2 else self.random.random() for _ in range(12)]
            for _ in range(2)
        ]

    def rollout(self, prompts: list[Any], trainer: GRPOTrainer) -> Rollout:
        """Random prompts, each shared by a group; completions with sampled and other tokens."""
        count = len(prompts)
        shared = [self._tokens(4, 9) for _ in range(count // GROUP_SIZE)]
        completions = [self._tokens(5, 14) for _ in range(count)]
        return {
            "prompt_ids": [shared[i // GROUP_SIZE] for i in range(count)],
            "completion_ids": completions,
            "logprobs": [[-1.0] * len(ids) for ids in completions],
            "env_mask": [self._mask(len(ids)) for ids in completions],
        }

    def _tokens(self, low: int, high: int) -> list[int]:
        return [self.random.randrange(3, VOCABULARY) for _ in range(self.random.randint(low, high))]

    def _mask(self, length: int) -> list[int]:
        mask = [int(self.random.random() < 0.6) for _ in range(length)]
        mask[self.random.randrange(length)] = 1
        return mask

    def first_reward(self, completions: list[Any], **_: Any) -> list[float | None]:
        return self.rewards[0]

    def second_reward(self, completions: list[Any], **_: Any) -> list[float | None]:
        return self.rewards[1]


@pytest.fixture(scope="module")
def source() -> Source:
    return Source()


@pytest.fixture(scope="module")
def trl_trainer(source: Source, tmp_path_factory: pytest.TempPathFactory) -> GRPOTrainer:
    """TRL's trainer as it is, on a tiny random model."""
    torch.manual_seed(0)
    trainer = GRPOTrainer(
        model=_model(),
        args=_arguments(tmp_path_factory.mktemp("trl")),
        reward_funcs=[source.first_reward, source.second_reward],
        train_dataset=Dataset.from_dict({"prompt": ["a"]}),
        processing_class=_tokenizer(),
        rollout_func=source.rollout,
    )
    trainer.model.train()
    trainer.current_gradient_accumulation_steps = 1
    return trainer


def _model() -> Qwen3ForCausalLM:
    """Weights larger than at a usual start, so that what is computed depends on the tokens."""
    config = Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        intermediate_size=48,
        max_position_embeddings=64,
        initializer_range=0.3,
        pad_token_id=0,
        eos_token_id=1,
    )
    return Qwen3ForCausalLM(config)


def _tokenizer() -> PreTrainedTokenizerFast:
    words = {"<pad>": 0, "<eos>": 1, **{chr(95 + i): i for i in range(2, VOCABULARY)}}
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(WordLevel(words, unk_token="<pad>")),
        pad_token="<pad>",
        eos_token="<eos>",
    )


def _arguments(folder: Path) -> GRPOConfig:
    return GRPOConfig(
        output_dir=str(folder),
        use_cpu=True,
        bf16=False,
        report_to="none",
        gradient_checkpointing=False,
        per_device_train_batch_size=12,
        num_generations=GROUP_SIZE,
        max_completion_length=20,
        temperature=TEMPERATURE,
        reward_weights=WEIGHTS,
    )


def _trl_inputs(trainer: GRPOTrainer, source: Source, seed: int) -> dict[str, Tensor]:
    source.draw(seed)
    trainer.beta = 0.0
    inputs: dict[str, Tensor] = trainer._generate_and_score_completions([{"prompt": "a"}] * 12)
    return inputs


@pytest.mark.parametrize("scale", ["group", "batch", "none"])
@pytest.mark.parametrize("seed", range(5))
def test_advantages_are_trls(
    trl_trainer: GRPOTrainer, source: Source, scale: Any, seed: int
) -> None:
    """From the same columns with missing rewards to the same advantages."""
    trl_trainer.scale_rewards = scale
    theirs = _trl_inputs(trl_trainer, source, seed)["advantages"]
    names = [str(number) for number in range(len(WEIGHTS))]
    weights = dict(zip(names, WEIGHTS, strict=True))
    rows = [dict(zip(names, row, strict=True)) for row in zip(*source.rewards, strict=True)]
    rewards = [weighted_sum(row, weights) for row in rows]
    numbers = torch.tensor([torch.nan if r is None else r for r in rewards])
    ours = compute_advantages(numbers, [i // GROUP_SIZE for i in range(12)], scale=scale)

    assert any(None in row.values() for row in rows)
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("loss_type", ["grpo", "bnpo", "dr_grpo", "dapo"])
@pytest.mark.parametrize("level", ["token", "sequence"])
@pytest.mark.parametrize("epsilon_high", [0.2, 0.28])
@pytest.mark.parametrize(
    "more",
    [{"beta": 0.04}, {"beta": 0.04, "use_bias_correction_kl": True}, {"delta": 1.3}, {}],
    ids=["kl", "corrected_kl", "delta", "plain"],
)
def test_loss_gradient_and_metrics_are_trls(
    trl_trainer: GRPOTrainer,
    source: Source,
    loss_type: str,
    level: Any,
    epsilon_high: float,
    more: dict[str, Any],
) -> None:
    """Theirs from padded rows, ours from packed ones; old and reference policy are others."""
    settings = LossSettings(
        loss_type, level, epsilon_high=epsilon_high, max_completion_tokens=20, **more
    )
    inputs = _with_other_policies(trl_trainer, _trl_inputs(trl_trainer, source, seed=7))
    _configure(trl_trainer, settings)
    trl_trainer._metrics["train"].clear()
    theirs, their_gradient = _gradient(
        trl_trainer, trl_trainer._compute_loss(trl_trainer.model, inputs)
    )
    their_metrics = {k: v[0] for k, v in trl_trainer._metrics["train"].items()}
    tokens, normalizer = _flat_tokens(trl_trainer, inputs)
    output = policy_loss(tokens, settings, normalizer)
    ours, our_gradient = _gradient(trl_trainer, output.loss)
    our_metrics = {k: m.value for k, m in output.metrics.items()} | output.extremes
    del our_metrics["ratio_mean"]
    if not settings.beta:
        del our_metrics["kl"]

    assert ours == pytest.approx(theirs, abs=1e-6, rel=1e-5)
    torch.testing.assert_close(our_gradient, their_gradient, atol=1e-6, rtol=1e-4)
    assert torch.cosine_similarity(our_gradient, their_gradient, dim=0) >= 0.99999
    assert our_metrics == pytest.approx(their_metrics, abs=1e-5)
    assert 0 < our_metrics["clip_ratio/region_mean"] < 1


def _configure(trainer: GRPOTrainer, settings: LossSettings) -> None:
    trainer.loss_type = settings.loss_type
    trainer.importance_sampling_level = settings.importance_level
    trainer.epsilon_low, trainer.epsilon_high = settings.epsilon_low, settings.epsilon_high
    trainer.beta = settings.beta
    trainer.args.delta = settings.delta
    trainer.args.use_bias_correction_kl = settings.use_bias_correction_kl
    trainer.scale_rewards = "group"


def _with_other_policies(trainer: GRPOTrainer, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """Old and reference log-probabilities somewhat off the current ones, as after some updates."""
    ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1)
    mask = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], dim=1)
    length = inputs["completion_ids"].shape[1]
    with torch.no_grad():
        current = trainer._get_per_token_logps_and_entropies(trainer.model, ids, mask, length)[0]
    generator = torch.Generator().manual_seed(3)
    old, reference = (
        current + scale * torch.randn(current.shape, generator=generator) for scale in (0.4, 0.2)
    )
    return {**inputs, "old_per_token_logps": old, "ref_per_token_logps": reference}


def _flat_tokens(trainer: GRPOTrainer, inputs: dict[str, Tensor]) -> tuple[FlatTokens, Normalizer]:
    """The same trajectories on our way: samples, packed rows, flat tokens."""
    samples = [_sample(inputs, row) for row in range(len(inputs["prompt_ids"]))]
    [batch] = pack(samples, token_budget=10_000)
    logprobs, entropy = token_logprobs(
        trainer.model, batch, temperature=TEMPERATURE, with_entropy=True
    )
    tokens = FlatTokens(
        logprobs,
        batch.old_logprobs,
        batch.advantages,
        batch.sequence_ids,
        ref_logprobs=_reference(inputs, batch),
        entropy=entropy,
    )
    return tokens, Normalizer(batch.num_tokens, batch.num_sequences)


def _sample(inputs: dict[str, Tensor], row: int) -> Sample:
    prompt = inputs["prompt_ids"][row][inputs["prompt_mask"][row].bool()].tolist()
    real = inputs["completion_mask"][row].bool()
    trained = [bool(m) for m in inputs["tool_mask"][row][real]]
    return Sample(
        ids=prompt + inputs["completion_ids"][row][real].tolist(),
        mask=[False] * len(prompt) + trained,
        logprobs=[0.0] * len(prompt) + inputs["old_per_token_logps"][row][real].tolist(),
        advantage=inputs["advantages"][row].item(),
        group=row // GROUP_SIZE,
        index=row,
    )


def _reference(inputs: dict[str, Tensor], batch: PackedBatch) -> Tensor:
    mask = (inputs["completion_mask"] * inputs["tool_mask"]).bool()
    rows = batch.sample_indices.tolist()
    return torch.cat([inputs["ref_per_token_logps"][row][mask[row]] for row in rows])


def _gradient(trainer: GRPOTrainer, loss: Tensor) -> tuple[float, Tensor]:
    gradients = torch.autograd.grad(loss, list(trainer.model.parameters()))
    return loss.item(), torch.cat([gradient.flatten() for gradient in gradients])
