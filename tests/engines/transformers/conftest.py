"""Tiny random models, and engines over them that every test leaves closed."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedModel,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from agentgym.engines.base import Generation, Sampling
from agentgym.engines.transformers import GenerateEngine, TransformersEngine

VOCABULARY = 64
SHAPE: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 256,
    "eos_token_id": None,
}


def random_model(kind: str, **settings: Any) -> PreTrainedModel:
    """A model with weights large enough that its distributions are far from uniform."""
    torch.manual_seed(0)
    shape = {**SHAPE, **settings}
    model: PreTrainedModel
    if kind == "qwen3":
        model = Qwen3ForCausalLM(Qwen3Config(**shape, tie_word_embeddings=True))
    elif kind == "llama":
        model = LlamaForCausalLM(LlamaConfig(**shape))
    else:
        model = MistralForCausalLM(MistralConfig(**shape, sliding_window=24))
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.25)
    return model


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def make_model() -> Callable[..., PreTrainedModel]:
    return random_model


@pytest.fixture
def model() -> PreTrainedModel:
    return random_model("qwen3")


Engine = TransformersEngine | GenerateEngine


@dataclass
class Bench:
    """An engine, its model, and what tests do with them again and again."""

    model: PreTrainedModel
    engine: Engine

    async def ask(
        self, prompt: list[int] | tuple[int, ...], *, session: str = "s", **sampling: Any
    ) -> Generation:
        """One turn; 8 tokens with seed 1 unless told otherwise."""
        settings = Sampling(**{"max_tokens": 8, "seed": 1, **sampling})
        return await self.engine.generate(tuple(prompt), settings, session=session)

    def expected_logprobs(
        self, prompt: list[int] | tuple[int, ...], answer: Generation
    ) -> torch.Tensor:
        """[T] of the sampled tokens, by one plain forward call over the whole sequence."""
        ids = torch.tensor([[*prompt, *answer.token_ids]])
        with torch.no_grad():
            logits: torch.Tensor = self.model(input_ids=ids, use_cache=False).logits[0].float()
        logprobs = logits.log_softmax(dim=-1)[len(prompt) - 1 : -1]
        return logprobs.gather(1, torch.tensor(answer.token_ids)[:, None])[:, 0]

    def logprob_error(self, prompt: list[int] | tuple[int, ...], answer: Generation) -> float:
        """Largest difference between reported and expected log-probabilities."""
        expected = self.expected_logprobs(prompt, answer)
        return float((expected - torch.tensor(answer.logprobs)).abs().max())


class Gate:
    """Stops the model before its n-th forward call, so that a test can act within a turn."""

    def __init__(self, model: PreTrainedModel, calls: int) -> None:
        self._calls_left = calls
        self._reached = threading.Event()
        self._opened = threading.Event()
        self._hook = model.register_forward_pre_hook(self._before_call)

    async def reached(self) -> None:
        """Wait until the model stands still."""
        deadline = time.monotonic() + 20
        while not self._reached.is_set():
            assert time.monotonic() < deadline, "the model was not called often enough"
            await asyncio.sleep(0.001)

    def open(self) -> None:
        """Let the model go on."""
        self._opened.set()

    def _before_call(self, *_: object) -> None:
        self._calls_left -= 1
        if self._calls_left == 0:
            self._hook.remove()
            self._reached.set()
            assert self._opened.wait(20)


@pytest.fixture
def gate() -> type[Gate]:
    return Gate


@pytest.fixture
async def make_bench() -> AsyncIterator[Callable[..., Bench]]:
    """Makes engines of a kind: `slots` over Qwen3, `generate` over a Mistral with a window."""
    engines: list[Engine] = []

    def make(kind: str = "slots", model: PreTrainedModel | None = None, **settings: Any) -> Bench:
        if kind == "slots":
            model = model or random_model("qwen3")
            engine: Engine = TransformersEngine(model, **settings)
        else:
            model = model or random_model("mistral")
            engine = GenerateEngine(model, **settings)
        engines.append(engine)
        return Bench(model, engine)

    yield make
    for engine in engines:
        await engine.aclose()
