"""Starting vLLM in this process and ending it, without a trace in the process."""

import asyncio
from pathlib import Path

import pytest
import torch
from vllm_engine_kit import EXACT, ModelWeights, prompt_of
from vllm_kit import DTYPE, ON_GPU, load, perturbed, tiny_model, weights_of
from vllm_local_kit import Local, traces

from agentgym.engines.vllm.engine import VllmEngine
from agentgym.engines.vllm.local_settings import VllmSettings
from agentgym.errors import ConfigError, EngineError

pytestmark = [pytest.mark.vllm, pytest.mark.usefixtures("alone")]
SMALL = VllmSettings(dtype=DTYPE, kv_cache_bytes=16 << 20)
PROMPT = prompt_of(0)


async def test_an_engine_comes_and_goes_without_a_trace(tmp_path: Path) -> None:
    """What a trainer in the same process would notice; and closing twice is closing once."""
    model = tiny_model(tmp_path)
    before = traces()
    engine = VllmEngine(model, SMALL)
    local = Local(engine, load(model))
    started = traces()
    prompt = tuple(token % 256 for token in PROMPT)
    with pytest.raises(ConfigError, match="has a vLLM engine already"):
        VllmEngine(model, SMALL)
    answer = await local.ask(prompt)
    turn = asyncio.create_task(local.ask(prompt, max_tokens=200))
    await local.steps(3)
    await engine.aclose()
    await engine.aclose()

    assert started == before
    assert local.error(prompt, answer) < EXACT
    assert not torch.distributed.is_initialized()
    with pytest.raises(EngineError, match="closed"):
        await turn
    with pytest.raises(EngineError, match="closed"):
        await local.ask(prompt)
    engine.release("s")


@pytest.mark.skipif(ON_GPU, reason="a mixture on a GPU takes new experts")
async def test_a_mixture_on_cpu_is_sampled_from_and_takes_no_weights(tmp_path: Path) -> None:
    """vLLM would compute something else with them; it goes on with those it was started with."""
    from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

    config = Qwen3MoeConfig(
        vocab_size=512,
        hidden_size=64,
        intermediate_size=64,
        moe_intermediate_size=64,
        num_experts=4,
        num_experts_per_tok=2,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,
        max_position_embeddings=256,
        initializer_range=0.3,
    )
    torch.manual_seed(0)
    Qwen3MoeForCausalLM(config).save_pretrained(tmp_path)
    engine = VllmEngine(tmp_path, SMALL)
    local = Local(engine, load(tmp_path))
    before = await local.ask(PROMPT)
    new = ModelWeights(weights_of(perturbed(load(tmp_path))))
    with pytest.raises(ConfigError, match=r"cannot be given new experts.*--engine transformers"):
        await engine.update_weights(new)
    after = await local.ask(PROMPT)
    await engine.aclose()

    assert after == before
    assert local.error(PROMPT, before) < EXACT


def test_a_model_that_vllm_cannot_serve_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        VllmEngine(tmp_path / "none", SMALL)
    (tmp_path / "config.json").write_text('{"architectures": ["NoSuchModel"], "model_type": "x"}')
    with pytest.raises(ConfigError, match="vLLM cannot serve") as caught:
        VllmEngine(tmp_path, SMALL)

    assert "\n" not in str(caught.value)


def test_a_head_size_that_the_cpu_cannot_compute_is_one_line(tmp_path: Path) -> None:
    from transformers import Qwen3Config, Qwen3ForCausalLM

    config = Qwen3Config(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        max_position_embeddings=128,
    )
    Qwen3ForCausalLM(config).save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match="vLLM cannot serve") as caught:
        VllmEngine(tmp_path, SMALL)

    assert "\n" not in str(caught.value)
    assert not torch.distributed.is_initialized()
