"""vLLM in the test's own process, started once per session over the package's policy, in float32.

Whoever changes its weights leaves them, and says so in `local.model`.
"""

import asyncio
import os
import random
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from vllm_engine_kit import CONTEXT, ModelWeights, off_by
from vllm_kit import DTYPE, POLICY, load, perturbed, weights_of

from agentgym.engines.base import Generation, Sampling
from agentgym.engines.vllm.engine import VllmEngine
from agentgym.engines.vllm.local_settings import VllmSettings

SETTINGS = VllmSettings(
    dtype=DTYPE, max_context=CONTEXT, kv_cache_bytes=256 << 20, lora_rank=8, max_num_seqs=64
)


def traces() -> list[Any]:
    """Of this process: what starting vLLM must not change."""
    return [
        dict(os.environ),
        random.getstate(),
        torch.get_rng_state().tolist(),
        torch.set_num_threads,
        torch.get_default_dtype(),
    ]


@dataclass
class Local:
    """An engine and the model that it should have."""

    engine: VllmEngine
    model: Any = field(default_factory=lambda: load(POLICY))

    async def ask(
        self, prompt: tuple[int, ...], *, session: str = "s", **sampling: Any
    ) -> Generation:
        settings = Sampling(**{"max_tokens": 8, "seed": 1, **sampling})
        return await self.engine.generate(prompt, settings, session=session)

    def error(self, prompt: tuple[int, ...], answer: Generation) -> float:
        """Largest difference between reported and expected logprobs."""
        return off_by(self.model, prompt, answer.token_ids, answer.logprobs)

    async def update(self, seed: int) -> int:
        """New weights, not far from the policy's."""
        model = perturbed(load(POLICY), seed=seed, scale=0.02)
        version = await self.engine.update_weights(ModelWeights(weights_of(model)))
        self.model = model
        return version

    async def steps(self, num: int) -> None:
        """Wait until vLLM has taken so many more."""
        goal = self.engine.stats.decode_steps + num
        await _until(lambda: self.engine.stats.decode_steps >= goal)

    async def comes_to_rest(self) -> None:
        """Wait until vLLM holds no turn."""
        await _until(lambda: not self.engine._vllm.has_unfinished_requests())


async def _until(is_true: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not is_true():  # noqa: ASYNC110 - another thread makes it true
            await asyncio.sleep(0)


_shared: list[Local] = []


@pytest.fixture
async def local() -> AsyncIterator[Local]:
    """The same engine for all tests, whatever event loop they have."""
    if not _shared:
        _shared.append(Local(VllmEngine(POLICY, SETTINGS)))
    yield _shared[0]
    await _shared[0].comes_to_rest()


@pytest.fixture
async def alone() -> None:
    """No engine, so that the test can start one."""
    await _close()


@pytest.fixture(scope="session", autouse=True)
def local_is_closed() -> Iterator[None]:
    """In the end no engine is left."""
    yield
    asyncio.run(_close())
    assert not any(thread.name == "agentgym-engine" for thread in threading.enumerate())


async def _close() -> None:
    while _shared:
        await _shared.pop().engine.aclose()
