"""The forward pass: packed rows are plain rows, to the last digits that float32 has."""

import math
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st
from peft import LoraConfig, get_peft_model
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from transformers import AutoConfig, AutoModelForCausalLM, Qwen3ForCausalLM, T5Config
from transformers import T5ForConditionalGeneration as T5

from agentgym.trainer import selection
from agentgym.trainer.logprobs import packing_refusal, token_logprobs
from agentgym.trainer.packing import PackedBatch, Sample, empty_batch, pack, padded
from agentgym.trainer.selection import selected_logprobs

VOCABULARY = 48
SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "intermediate_size": 48,
    "max_position_embeddings": 128,
    "initializer_range": 0.2,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
"""Weights larger than at a usual start, so that what is computed depends on every token."""


def make_model(family: str, **more: Any) -> Any:
    """A random model of a few thousand parameters."""
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **{**SIZES, **more}))


@pytest.fixture(scope="module")
def models() -> dict[str, Any]:
    """The two families the tiny policies come from."""
    return {family: make_model(family) for family in ("qwen3", "llama")}


def make_samples(seed: int, *, num_groups: int = 3, num_members: int = 4) -> list[Sample]:
    """Groups that share a prompt; completions of sampled and other tokens."""
    rng = random.Random(seed)
    samples = []
    for group in range(num_groups):
        prompt = [rng.randrange(VOCABULARY) for _ in range(rng.randint(1, 20))]
        for _ in range(num_members):
            length = rng.randint(1, 30)
            samples.append(
                Sample(
                    ids=prompt + [rng.randrange(VOCABULARY) for _ in range(length)],
                    mask=[False] * len(prompt) + [rng.random() < 0.6 for _ in range(length)],
                    logprobs=[0.0] * (len(prompt) + length),
                    advantage=rng.gauss(0, 1),
                    group=group,
                    index=len(samples),
                )
            )
    return samples


def by_sample(batches: list[PackedBatch], values: list[Tensor]) -> Tensor:
    """Flat values of all batches, in the order of the samples."""
    pieces: dict[int, Tensor] = {}
    for batch, flat in zip(batches, values, strict=True):
        for local, index in enumerate(batch.sample_indices.tolist()):
            pieces[index] = flat[batch.sequence_ids == local]
    return torch.cat([pieces[index] for index in sorted(pieces)])


def update_of(model: nn.Module, batches: list[PackedBatch]) -> tuple[Tensor, Tensor]:
    """Log-probabilities in the order of the samples, and the policy gradient."""
    model.zero_grad()
    values = []
    for batch in batches:
        logprobs = token_logprobs(model, batch, temperature=0.7).logprobs
        (batch.advantages * logprobs).sum().backward()
        values.append(logprobs.detach())
    gradients = [p.grad.flatten() for p in model.parameters() if p.grad is not None]
    return by_sample(batches, values), torch.cat(gradients)


def plainly(model: Any, samples: list[Sample], temperature: float) -> Tensor:
    """The definition: each sample alone, all logits, no mask."""
    values = []
    for sample in samples:
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([sample.ids])).logits[0] / temperature
        every = logits.log_softmax(-1)
        values += [every[p - 1, sample.ids[p]] for p in sample.trained]
    return torch.stack(values)


@pytest.mark.parametrize("family", ["qwen3", "llama"])
@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 10_000), budget=st.integers(20, 400), share=st.booleans())
def test_the_update_does_not_depend_on_packing(
    models: dict[str, Any], family: str, seed: int, budget: int, share: bool
) -> None:
    """Packed or padded, prompts shared or not, in any number of micro-batches."""
    model, samples = models[family], make_samples(seed)
    packed = pack(samples, token_budget=budget, share_prompts=share)
    logprobs, gradient = update_of(model, packed)
    reference, direction = update_of(model, padded(samples, token_budget=10_000))

    torch.testing.assert_close(reference, plainly(model, samples, 0.7), atol=1e-5, rtol=0)
    torch.testing.assert_close(logprobs, reference, atol=1e-5, rtol=0)
    assert (gradient - direction).norm() <= 1e-5 * direction.norm()
    assert torch.cosine_similarity(gradient.double(), direction.double(), dim=0) >= 0.99999


@pytest.mark.parametrize("family", ["qwen3", "llama"])
def test_gradient_checkpointing_recomputes_the_same(family: str) -> None:
    """The blocks travel with the layer's arguments into the second forward pass."""
    model, samples = make_model(family), make_samples(1)
    batches = pack(samples, token_budget=200)
    model.train()
    logprobs, gradient = update_of(model, batches)
    model.gradient_checkpointing_enable()
    again, repeated = update_of(model, batches)

    assert model.is_gradient_checkpointing
    torch.testing.assert_close(again, logprobs)
    torch.testing.assert_close(repeated, gradient)


def test_adapters_take_part() -> None:
    """PEFT passes the blocks on, and only the adapter gets a gradient."""
    config = LoraConfig(target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    model, samples = get_peft_model(make_model("qwen3"), config), make_samples(2)
    logprobs, gradient = update_of(model, pack(samples, token_budget=100))
    reference, direction = update_of(model, padded(samples, token_budget=1000))
    with model.disable_adapter():
        base = plainly(model, samples, 0.7)

    assert packing_refusal(model) is None
    torch.testing.assert_close(logprobs, reference, atol=1e-5, rtol=0)
    torch.testing.assert_close(gradient, direction, atol=1e-5, rtol=1e-3)
    assert not torch.allclose(logprobs, base, atol=1e-3)


@pytest.fixture
def one_process(tmp_path: Path) -> Iterator[None]:
    """A process group of one."""
    store = f"file://{tmp_path}/store"
    dist.init_process_group("gloo", init_method=store, rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("one_process")
def test_the_wrapper_of_data_parallel_training_is_called() -> None:
    """Its hooks see the forward pass, also of a rank that has nothing to train."""
    model, samples = make_model("qwen3"), make_samples(3)
    batches = pack(samples, token_budget=100)
    logprobs, gradient = update_of(model, batches)
    wrapped = DistributedDataParallel(model)
    calls: list[nn.Module] = []
    wrapped.register_forward_hook(lambda module, *_: calls.append(module))
    same, repeated = update_of(wrapped, [*batches, empty_batch()])

    assert len(calls) == len(batches) + 1
    assert packing_refusal(wrapped) is None
    torch.testing.assert_close(same, logprobs)
    torch.testing.assert_close(repeated, gradient)


def test_an_empty_batch_has_gradient_zero() -> None:
    """A rank without work must still reach every parameter in backward."""
    model = make_model("llama")
    result = token_logprobs(model, empty_batch(), with_entropy=True)
    result.logprobs.sum().backward()

    assert result.logprobs.shape == (0,)
    assert all(p.grad is not None and not p.grad.any() for p in model.parameters())


def test_temperature_is_the_samplers(models: dict[str, Any]) -> None:
    """At another temperature the ratio would not be 1 on policy."""
    samples = make_samples(4)
    [batch] = pack(samples, token_budget=1000)
    for temperature in (0.5, 1.0, 1.7):
        result = token_logprobs(models["qwen3"], batch, temperature=temperature)

        torch.testing.assert_close(
            by_sample([batch], [result.logprobs]),
            plainly(models["qwen3"], samples, temperature),
            atol=1e-5,
            rtol=0,
        )
        assert result.entropy is None


def test_selection_has_the_gradient_of_log_softmax(monkeypatch: pytest.MonkeyPatch) -> None:
    """In pieces of two tokens, at a temperature, with the entropy of the same distribution."""
    monkeypatch.setattr(selection, "_CHUNK_CPU", 2 * 7)
    logits = torch.randn(5, 7, requires_grad=True)
    targets = torch.tensor([0, 6, 3, 3, 1])
    weights = torch.randn(5)
    every = (logits / 0.6).log_softmax(-1)
    expected = every.gather(1, targets[:, None])[:, 0]
    found, entropy = selected_logprobs(logits, targets, temperature=0.6, with_entropy=True)

    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(entropy, -(every.exp() * every).sum(-1).detach())
    torch.testing.assert_close(
        torch.autograd.grad((weights * found).sum(), logits),
        torch.autograd.grad((weights * expected).sum(), logits),
    )


def test_half_precision_logits_are_normalised_in_float32() -> None:
    """bfloat16 has three digits; a sum over a vocabulary needs more."""
    logits = torch.randn(4, 50_000).bfloat16()
    targets = torch.randint(50_000, (4,))
    found, _ = selected_logprobs(logits, targets)
    expected = logits.double().log_softmax(-1).gather(1, targets[:, None])[:, 0]

    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("family", "more", "reason"),
    [
        ("llama", {}, None),
        ("qwen2", {}, None),
        ("qwen3", {}, None),
        ("smollm3", {}, None),
        ("phi3", {}, None),
        ("gemma", {}, None),
        ("olmo2", {}, None),
        ("gpt_neox", {}, None),
        ("gpt2", {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 128}, None),
        ("mixtral", {"num_local_experts": 4}, None),
        ("mistral", {}, "its attention slides over 4096 tokens"),
        ("gemma3_text", {}, "it has layers of type sliding_attention"),
        ("lfm2", {"layer_types": ["conv", "full_attention"]}, "it has layers of type conv"),
        ("bloom", {"n_layer": 2, "n_head": 4}, "its attention is 'eager', and packed rows need"),
        ("qwen3", {"attn_implementation": "eager"}, "its attention is 'eager', and packed rows"),
        ("falcon_h1", {"mamba_d_ssm": 32, "mamba_n_heads": 4, "mamba_d_head": 8}, "it keeps a st"),
    ],
)
def test_models_that_cannot_be_packed_are_told_apart(
    family: str, more: dict[str, Any], reason: str | None
) -> None:
    """And either way plain rows or packed ones give the right log-probabilities."""
    model, samples = make_model(family, **more).eval(), make_samples(5)
    refusal = packing_refusal(model)
    make: Callable[..., list[PackedBatch]] = pack if refusal is None else padded
    batches = make(samples, token_budget=300)
    with torch.no_grad():
        values = [token_logprobs(model, batch).logprobs for batch in batches]

    assert (refusal is None) == (reason is None)
    assert (refusal or "").startswith(reason or "")
    torch.testing.assert_close(
        by_sample(batches, values), plainly(model, samples, 1.0), atol=2e-5, rtol=0
    )


def test_encoder_decoders_are_refused() -> None:
    """Before anything is run."""
    config = T5Config(vocab_size=32, d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2)

    assert packing_refusal(T5(config)) == "it is an encoder-decoder model"


class Deaf(Qwen3ForCausalLM):
    """Takes positions and ignores them."""

    def forward(  # type: ignore[no-untyped-def, override]
        self, input_ids=None, attention_mask=None, position_ids=None, logits_to_keep=0, **more
    ):
        return super().forward(
            input_ids=input_ids,
            attention_mask=attention_mask,
            logits_to_keep=logits_to_keep,
            **more,
        )


class Blind(Deaf):
    """Takes arguments for attention and ignores them."""

    def forward(  # type: ignore[no-untyped-def, override]
        self, position_ids=None, logits_to_keep=0, tree_blocks=None, **more
    ):
        return super().forward(position_ids=position_ids, logits_to_keep=logits_to_keep, **more)


class Old(Qwen3ForCausalLM):
    """Takes neither positions nor a choice of logits."""

    def forward(  # type: ignore[no-untyped-def, override]
        self, input_ids=None, attention_mask=None, use_cache=None
    ):
        return super().forward(
            input_ids=input_ids, attention_mask=attention_mask, use_cache=use_cache
        )


def test_a_model_that_takes_only_ids_and_a_mask() -> None:
    """Packing is refused by the names of what is missing; plain rows still work."""
    model, samples = Old(make_model("qwen3").config), make_samples(6)
    batches = padded(samples, token_budget=200)
    values = [token_logprobs(model, batch).logprobs.detach() for batch in batches]

    assert packing_refusal(model) == "its forward pass takes no logits_to_keep and no position_ids"
    torch.testing.assert_close(
        by_sample(batches, values), plainly(model, samples, 1.0), atol=1e-5, rtol=0
    )


def test_the_model_itself_is_asked() -> None:
    """What no config says: positions or blocks that do not reach the layers."""
    config = make_model("qwen3").config

    assert "differ by" in str(packing_refusal(Deaf(config)))
    assert "failed on a packed row" in str(packing_refusal(Blind(config)))


def test_the_question_leaves_the_model_as_it_was() -> None:
    """Dropout is off for the comparison only."""
    model = make_model("llama", attention_dropout=0.5).train()

    assert packing_refusal(model) is None
    assert model.training
    assert all(parameter.grad is None for parameter in model.parameters())


def test_other_users_of_the_model_notice_nothing(models: dict[str, Any]) -> None:
    """Without blocks the attention function is Transformers' own: masks and caches work on."""
    model = models["qwen3"]
    ids = torch.tensor([[0, 0, 5, 6, 7, 8], [3, 4, 5, 6, 7, 8]])
    mask = torch.tensor([[0, 0, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1]])
    with torch.no_grad():
        left_padded = model(input_ids=ids, attention_mask=mask).logits[0, -1]
        alone = model(input_ids=ids[:1, 2:]).logits[0, -1]
        generated = model.generate(ids[1:], max_new_tokens=4, do_sample=False, use_cache=True)
        again = model.generate(ids[1:], max_new_tokens=4, do_sample=False, use_cache=False)

    torch.testing.assert_close(left_padded, alone, atol=1e-5, rtol=0)
    assert generated.tolist() == again.tolist()
    assert math.isfinite(left_padded.sum())
