"""`VllmServerEngine` over vLLM's own server with the package's policy, in float32.

One server for all tests; whoever changes its weights leaves them and says so in `bench.model`.
"""

import asyncio
import copy
import os
import signal
import urllib.request
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from vllm_kit import EXACT, POLICY, Served, load, logprobs_of, serving, settings_for, weights_of

from agentgym.engines.base import Generation, Sampling
from agentgym.engines.vllm.server import VllmServerEngine
from agentgym.engines.vllm.server_command import ServerSettings
from agentgym.engines.vllm.settings import Deadlines, VllmServers
from agentgym.engines.weights import Bucket, TensorSpec

__all__ = ["EXACT"]
CONTEXT = 512
EOS = 2
"""Of the policy."""
_versions = count(1)
"""Of all weights that a session makes."""


def prompt_of(seed: int, length: int = 40) -> tuple[int, ...]:
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randint(3, 500, (length,), generator=generator).tolist())


@dataclass
class ModelWeights:
    """Those of a model, in buckets of one tensor."""

    tensors: Mapping[str, Any]
    version: int = field(default_factory=lambda: next(_versions))
    kind: Literal["full", "lora"] = "full"
    lora_config: Mapping[str, Any] = field(default_factory=dict)

    @property
    def specs(self) -> Mapping[str, TensorSpec]:
        return {
            name: TensorSpec(shape=tuple(tensor.shape), dtype=str(tensor.dtype)[6:])
            for name, tensor in self.tensors.items()
        }

    def buckets(self) -> Iterator[Bucket]:
        for name, tensor in self.tensors.items():
            yield {name: tensor}


@dataclass
class Bench:
    """A server, an engine over it, and the model that it should have."""

    served: Served
    model: Any
    engine: VllmServerEngine

    async def ask(self, prompt: tuple[int, ...], *, session: str = "s", **how: Any) -> Generation:
        settings = Sampling(**{"max_tokens": 8, "seed": 1, **how})
        return await self.engine.generate(prompt, settings, session=session)

    def error(self, prompt: tuple[int, ...], answer: Generation) -> float:
        """Largest difference between reported and expected logprobs."""
        return off_by(self.model, prompt, answer.token_ids, answer.logprobs)

    async def update(self, model: Any) -> int:
        """New weights."""
        version = await self.engine.update_weights(ModelWeights(weights_of(model)))
        self.model = model
        return version

    async def cached_tokens(self, prompt: tuple[int, ...]) -> int:
        """How much of a prompt the server takes from its cache, for whoever asks without a salt."""
        sampling = {"max_tokens": 1, "logprobs": 0}
        body = {"token_ids": list(prompt), "sampling_params": sampling}
        call = self.served.call
        answer = await asyncio.to_thread(lambda: call("/inference/v1/generate", body))
        return int(answer["usage"]["prompt_tokens_details"]["cached_tokens"])

    @property
    def running(self) -> int:
        """Requests that the server holds, running or waiting."""
        lines = self.served_text("/metrics").splitlines()
        wanted = ("vllm:num_requests_running{", "vllm:num_requests_waiting{")
        return sum(int(float(line.split()[-1])) for line in lines if line.startswith(wanted))

    def served_text(self, path: str) -> str:
        with urllib.request.urlopen(self.served.url + path, timeout=10) as answer:
            return str(answer.read().decode())

    async def comes_to_rest(self) -> None:
        """Wait until the server holds no request."""
        for _ in range(100):
            if await asyncio.to_thread(lambda: self.running) == 0:
                return
            await asyncio.sleep(0.05)
        pytest.fail(f"{self.running} requests are left")


def off_by(model: Any, prompt: Any, sampled: Any, logprobs: Any) -> float:
    expected = logprobs_of(model, list(prompt), list(sampled))
    return max(abs(a - b) for a, b in zip(expected, logprobs, strict=True))


def adapted(model: Any, *, seed: int, rank: int = 4) -> Any:
    """A copy of a model with a random adapter."""
    peft = pytest.importorskip("peft")
    torch.manual_seed(seed)
    settings = peft.LoraConfig(
        r=rank, target_modules=["q_proj", "o_proj", "up_proj"], init_lora_weights=False
    )
    return peft.get_peft_model(copy.deepcopy(model), settings).eval()


def adapter_weights(model: Any) -> ModelWeights:
    """Its adapter."""
    peft = pytest.importorskip("peft")
    return ModelWeights(
        peft.get_peft_model_state_dict(model),
        kind="lora",
        lora_config=model.peft_config["default"].to_dict(),
    )


DEADLINES = Deadlines(connect_s=60, turn_s=60, hung_s=6, gone_s=60, update_s=30, resume_s=5)


@dataclass
class Ground:
    """A server that can be killed and started again, and what it has."""

    settings: ServerSettings
    model: Any = None
    served: Served | None = None
    _stack: ExitStack = field(default_factory=ExitStack)

    def start(self) -> Served:
        """With the policy's own weights."""
        self.served = self._stack.enter_context(serving(self.settings))
        self.model = load(Path(self.settings.model))
        return self.served

    def kill(self) -> None:
        """Without a word."""
        assert self.served is not None
        os.killpg(self.served.process.pid, signal.SIGKILL)
        self.served.process.wait(20)

    def stop(self) -> None:
        """End it."""
        self._stack.close()


@pytest.fixture(scope="session")
def ground() -> Iterator[Ground]:
    """The server: a short queue, and adapters."""
    extra = ("--max-num-queued-reqs", "24", "--enable-prompt-tokens-details")
    ground = Ground(settings_for(POLICY, max_context=CONTEXT, lora_rank=8, extra=extra))
    ground.start()
    yield ground
    ground.stop()


@pytest.fixture
async def bench(ground: Ground) -> AsyncIterator[Bench]:
    """An engine that is closed in the end."""
    assert ground.served is not None
    bench = bench_at(ground, DEADLINES)
    yield bench
    ground.model = bench.model
    await bench.engine.aclose()


def bench_at(ground: Ground, deadlines: Deadlines) -> Bench:
    """An engine over what runs."""
    assert ground.served is not None
    servers = VllmServers(urls=(ground.served.url,), deadlines=deadlines)
    return Bench(ground.served, ground.model, VllmServerEngine(servers))
