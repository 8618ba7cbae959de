"""A model is served, served slower with the reason logged, or refused by name; never wrongly."""

import logging
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from transformers import (
    BertConfig,
    BertModel,
    BloomConfig,
    BloomForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    MambaConfig,
    MambaForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
)

from agentgym.engines.base import Sampling
from agentgym.engines.transformers import (
    GenerateEngine,
    TransformersEngine,
    transformers_engine,
)
from agentgym.errors import ConfigError

MakeModel = Callable[..., Any]
PROMPT = tuple(range(3, 33))
QWEN3: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 256,
}


def sliding_qwen3(window: int) -> nn.Module:
    layers = ["full_attention", "sliding_attention"]
    config = Qwen3Config(**QWEN3, layer_types=layers, use_sliding_window=True)
    config.sliding_window = window
    return Qwen3ForCausalLM(config)


async def logprob_error(engine: Any, model: nn.Module) -> float:
    """Between the engine and a plain forward call, for one turn of 12 tokens."""
    answer = await engine.generate(PROMPT, Sampling(max_tokens=12, seed=1), session="s")
    await engine.aclose()
    with torch.no_grad():
        logits = model.eval()(input_ids=torch.tensor([[*PROMPT, *answer.token_ids]])).logits
    logprobs = logits[0, len(PROMPT) - 1 : -1].log_softmax(dim=-1)
    expected = logprobs.gather(1, torch.tensor(answer.token_ids)[:, None])[:, 0]
    return float((expected - torch.tensor(answer.logprobs)).abs().max())


@pytest.mark.parametrize("window", [16, 256])
async def test_a_window_matters_only_if_it_is_shorter_than_the_context(window: int) -> None:
    model = sliding_qwen3(window)
    engine = transformers_engine(model)

    assert isinstance(engine, GenerateEngine if window == 16 else TransformersEngine)
    assert await logprob_error(engine, model) < 1e-5


async def test_other_families_are_served(make_model: MakeModel) -> None:
    """Learned positions, and a position limit under another name."""
    model = GPT2LMHeadModel(
        GPT2Config(n_embd=32, n_layer=2, n_head=2, vocab_size=64, n_positions=128)
    )
    engine = transformers_engine(model)

    assert isinstance(engine, TransformersEngine)
    assert engine.max_context == 128
    assert await logprob_error(engine, model) < 1e-5


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (
            MambaForCausalLM(MambaConfig(hidden_size=32, num_hidden_layers=1, vocab_size=64)),
            "MambaForCausalLM: it keeps a recurrent state",
        ),
        (
            BloomForCausalLM(BloomConfig(hidden_size=32, n_layer=2, n_head=2, vocab_size=64)),
            "BloomForCausalLM: it does not take the slot cache",
        ),
    ],
    ids=["mamba", "bloom"],
)
async def test_the_rest_falls_back_and_says_why(
    model: nn.Module, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Bloom declares nothing: only the trial call shows that its masks are different."""
    with caplog.at_level(logging.WARNING):
        engine = transformers_engine(model, max_context=64)

    assert isinstance(engine, GenerateEngine)
    assert reason in caplog.text
    assert await logprob_error(engine, model) < 1e-4


def test_the_slot_engine_itself_refuses_what_it_cannot_serve(make_model: MakeModel) -> None:
    with pytest.raises(ConfigError, match="MistralForCausalLM: its sliding_attention of 24 tokens"):
        TransformersEngine(make_model("mistral"))


class _CountsItself(Qwen3ForCausalLM):
    """Ignores the positions it is given and asks the cache how long it is."""

    def forward(
        self,
        input_ids: Any = None,
        attention_mask: Any = None,
        position_ids: Any = None,
        cache: Any = None,
        use_cache: bool = False,
        logits_to_keep: int = 0,
    ) -> Any:
        return super().forward(
            input_ids=input_ids,
            attention_mask=attention_mask,
            cache=cache,
            use_cache=use_cache,
            logits_to_keep=logits_to_keep,
        )


def test_a_model_whose_logits_differ_through_the_cache_is_not_trusted() -> None:
    """It declares nothing unusual and would be trained on log-probabilities that are wrong."""
    torch.manual_seed(0)
    with pytest.raises(ConfigError, match="its logits through the slot cache are off by"):
        TransformersEngine(_CountsItself(Qwen3Config(**QWEN3)))


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (
            T5ForConditionalGeneration(
                T5Config(d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2, vocab_size=64)
            ),
            "T5ForConditionalGeneration is an encoder-decoder",
        ),
        (
            BertModel(
                BertConfig(
                    hidden_size=16,
                    num_hidden_layers=1,
                    num_attention_heads=2,
                    intermediate_size=16,
                    vocab_size=64,
                )
            ),
            "BertModel has no language modelling head",
        ),
        (nn.Linear(2, 2), "not from Linear"),
    ],
    ids=["t5", "bert", "linear"],
)
def test_a_model_that_nothing_can_serve_is_refused_by_name(model: nn.Module, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        transformers_engine(model, max_context=64)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_context": 300}, "max_context=300 exceeds the model's 256 positions"),
        ({"max_context": 1}, "max_context=1"),
        ({"max_rows": 0}, "max_rows=0"),
    ],
)
def test_sizes_out_of_range_are_named(
    make_model: MakeModel, settings: dict[str, int], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        transformers_engine(make_model("qwen3"), **settings)


async def test_wrappers_of_the_training_side_are_seen_through(make_model: MakeModel) -> None:
    model = make_model("qwen3")
    engine = transformers_engine(nn.DataParallel(model))

    assert isinstance(engine, TransformersEngine)
    assert await logprob_error(engine, model) < 1e-5


async def test_a_model_in_half_precision_is_served(make_model: MakeModel) -> None:
    model = make_model("qwen3").bfloat16()

    assert await logprob_error(transformers_engine(model), model) < 0.3


async def test_lora_adapters_take_part(make_model: MakeModel) -> None:
    """The adapter is what is trained; the base model alone would be another policy."""
    peft = pytest.importorskip("peft")
    base = make_model("llama")
    adapter = peft.LoraConfig(target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    model = peft.get_peft_model(base, adapter)
    with model.disable_adapter():
        without = await logprob_error(transformers_engine(base), base)
    engine = transformers_engine(model)

    assert isinstance(engine, TransformersEngine)
    assert await logprob_error(engine, model) < 1e-5
    assert without < 1e-5


def test_adapters_of_virtual_tokens_are_refused(make_model: MakeModel) -> None:
    peft = pytest.importorskip("peft")
    adapter = peft.PromptTuningConfig(num_virtual_tokens=2, task_type="CAUSAL_LM")

    with pytest.raises(ConfigError, match="virtual tokens"):
        transformers_engine(peft.get_peft_model(make_model("llama"), adapter))
