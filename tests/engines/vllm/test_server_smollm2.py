"""SmolLM2-135M on vLLM's own server: a real checkpoint with a tied output layer, in float32.

Run by hand, where the checkpoint is: `AGENTGYM_SMOLLM2=folder pytest -m "vllm and slow" -s ...`.
"""

import asyncio
import copy
import os
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from vllm_engine_kit import (
    DEADLINES,
    Bench,
    Ground,
    adapted,
    adapter_weights,
    bench_at,
    off_by,
    prompt_of,
)
from vllm_kit import load, perturbed, settings_for

pytestmark = [pytest.mark.vllm, pytest.mark.slow]

EXACT = 2e-4
"""Nats, in float32, over 30 layers."""
CONTEXT = 512


@pytest.fixture(scope="module")
def smollm2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoint in float32."""
    if "AGENTGYM_SMOLLM2" not in os.environ:
        pytest.skip("AGENTGYM_SMOLLM2 names no folder")
    from transformers import AutoTokenizer

    source, folder = os.environ["AGENTGYM_SMOLLM2"], tmp_path_factory.mktemp("smollm2")
    load(Path(source)).float().save_pretrained(folder)
    AutoTokenizer.from_pretrained(source).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def large_ground(smollm2: Path) -> Iterator[Ground]:
    settings = settings_for(
        smollm2,
        max_context=CONTEXT,
        lora_rank=8,
        threads=2,
        kv_cache_bytes=512 << 20,
        extra=("--enable-prompt-tokens-details",),
    )
    ground = Ground(settings)
    ground.start()
    yield ground
    ground.stop()


@pytest.fixture
async def large(large_ground: Ground) -> AsyncIterator[Bench]:
    bench = bench_at(large_ground, DEADLINES)
    yield bench
    large_ground.model = bench.model
    await bench.engine.aclose()


async def test_every_turn_is_the_policys_through_an_update_and_an_adapter(large: Bench) -> None:
    """Before; across an update that overtakes turns; after it; and with an adapter over that."""
    old = large.model
    new = perturbed(copy.deepcopy(old), seed=1, scale=0.01)
    prompt = prompt_of(1, 120)
    before = await large.ask(prompt, max_tokens=20)
    turns = [
        asyncio.create_task(large.ask(prompt, session=str(i), seed=i, max_tokens=100))
        for i in range(4)
    ]
    await asyncio.sleep(3)
    started = time.monotonic()
    version = await large.update(new)
    took = time.monotonic() - started
    answers = await asyncio.gather(*turns)
    cached = await large.cached_tokens(prompt)
    after = await large.ask(prompt, max_tokens=20)
    errors = {"before": off_by(old, prompt, before.token_ids, before.logprobs)}
    errors["after"] = large.error(prompt, after)
    for number, answer in enumerate(answers):
        begins, ids = answer.token_versions.index(version), answer.token_ids
        errors[f"{number} old"] = off_by(old, prompt, ids[:begins], answer.logprobs[:begins])
        late = (*prompt, *ids[:begins])
        errors[f"{number} new"] = off_by(new, late, ids[begins:], answer.logprobs[begins:])
    tuned = adapted(new, seed=0)
    await large.engine.update_weights(adapter_weights(tuned))
    with_adapter = await large.ask(prompt, max_tokens=20)
    errors["adapter"] = off_by(tuned, prompt, with_adapter.token_ids, with_adapter.logprobs)
    print(f"\nupdate {took:.1f} s; {errors}")

    assert cached == 0
    assert max(errors.values()) < EXACT
    assert off_by(old, prompt, after.token_ids, after.logprobs) > 0.1
    assert large.error(prompt, with_adapter) > 0.01
