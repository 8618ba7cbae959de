"""A real vLLM server over a tiny model, started once per test session, and what tests ask it.

from vllm_kit import Served, served  # the fixture
"""

import asyncio
import json
import os
import signal
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
import warm_kit
from warm_kit import Process

from agentgym.engines.vllm.ports import free_port
from agentgym.engines.vllm.server_command import ServerSettings, server_argv, server_environment
from agentgym.engines.vllm.transfer import Sender
from agentgym.testing import byte_tokenizer
from agentgym.trainer.tiny_policy import PATH

DTYPE = os.environ.get("AGENTGYM_VLLM_DTYPE", "float32")
"""What vLLM computes in; tests compare with a forward pass in float32."""
POLICY = Path(os.environ.get("AGENTGYM_VLLM_MODEL", PATH))
"""What the tests of both engines sample from; another one by hand, in the dtype of the tests."""
IS_OWN = POLICY == PATH
EXACT = (1e-4 if IS_OWN else 2e-4) if DTYPE == "float32" else 0.15
"""Nats; over 30 layers more than over two."""
ON_GPU = torch.cuda.is_available()
START_S = 300.0
MAX_CONTEXT = 256


def tiny_model(folder: Path, *, seed: int = 0, tied: bool = True, dtype: str = "float32") -> Path:
    """Save a random Qwen3 (head_dim 32, two layers) with a byte tokenizer; where it lies."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    tokenizer = byte_tokenizer()
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,
        max_position_embeddings=MAX_CONTEXT,
        tie_word_embeddings=tied,
        initializer_range=0.3,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    torch.manual_seed(seed)
    Qwen3ForCausalLM(config).to(getattr(torch, dtype)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def load(folder: Path) -> Any:
    """The model of a folder, for a forward pass."""
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, dtype="auto").eval()


def perturbed(model: Any, *, seed: int = 1, scale: float = 0.05) -> Any:
    """The same model after a random step that moves every weight."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter += scale * noise.to(parameter.dtype)
    return model


def weights_of(model: Any) -> dict[str, torch.Tensor]:
    """Its weights under the names of its checkpoint, tied ones once."""
    tied = model.config.tie_word_embeddings
    return {
        name: tensor.detach()
        for name, tensor in model.state_dict().items()
        if not (tied and name == "lm_head.weight")
    }


@torch.no_grad()
def logprobs_of(model: Any, prompt: Sequence[int], sampled: Sequence[int]) -> list[float]:
    """[T] of sampled tokens, by a forward pass over prompt and completion."""
    ids = torch.tensor([[*prompt, *sampled]])
    logits = model(ids).logits[0, len(prompt) - 1 : -1].float()
    picked = logits.log_softmax(-1).gather(-1, torch.tensor(sampled)[:, None])
    return picked[:, 0].tolist()


class CallError(Exception):
    """The server refused."""


@dataclass
class Served:
    """A running server."""

    url: str
    model: Path
    process: Process
    log: Path
    key: str | None = None
    headers: dict[str, str] = field(default_factory=dict)

    def call(self, path: str, body: Any = None, *, timeout_s: float = 60.0) -> Any:
        """POST JSON if there is a body, else GET; the answer parsed.

        Raises:
            CallError: any status but 200; says what the server said.
        """
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", **self.headers}
        request = urllib.request.Request(f"{self.url}{path}", data, headers)
        try:
            with urllib.request.urlopen(request, timeout=timeout_s) as answer:
                text = answer.read()
        except urllib.error.HTTPError as error:
            raise CallError(f"{error.code}: {error.read().decode()}") from error
        return json.loads(text) if text else None

    def generate(self, prompt: Sequence[int], *, max_tokens: int = 8, seed: int = 0) -> Any:
        """One choice of `/inference/v1/generate`, with token ids, logprobs and versions."""
        sampling = {"max_tokens": max_tokens, "seed": seed, "logprobs": 0, "ignore_eos": True}
        body = {"token_ids": list(prompt), "sampling_params": sampling}
        return self.call("/inference/v1/generate", body)["choices"][0]

    def drift(self, model: Any, prompt: Sequence[int] = (1, 2, 3, 4, 5), **how: int) -> float:
        """max |logprob of the server - logprob of `model`| over a completion."""
        choice = self.generate(prompt, **how)
        sampled = [entry["logprob"] for entry in choice["logprobs"]["content"]]
        expected = logprobs_of(model, prompt, choice["token_ids"])
        return max(abs(a - b) for a, b in zip(sampled, expected, strict=True))

    def stop(self) -> None:
        """End it and all its processes."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGTERM)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait(20)


@contextmanager
def serving(settings: ServerSettings, *, key: str | None = None) -> Iterator[Served]:
    """Start a server, wait until it is well, and end it."""
    log = Path(tempfile.mkdtemp(prefix="vllm-")) / "server.log"
    environment = server_environment(settings, os.environ, key=key)
    _, *words = server_argv(settings)
    process = warm_kit.start_logged(*words, log=log, env=environment, imported=("vllm_warm",))
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    url = f"http://127.0.0.1:{settings.port}"
    served = Served(url, Path(settings.model), process, log, key, headers)
    try:
        wait_until_well(served)
        yield served
    finally:
        served.stop()


def wait_until_well(served: Served) -> None:
    """Return when `/health` answers; fail with the log's end if the server ends or takes long."""
    end = time.monotonic() + START_S
    while time.monotonic() < end and served.process.poll() is None:
        try:
            served.call("/health", timeout_s=5)
            return
        except OSError:
            time.sleep(0.2)
    pytest.fail(f"the server is not up:\n{served.log.read_text(errors='replace')[-4000:]}")


def settings_for(model: Path, **changes: Any) -> ServerSettings:
    """Small and quick."""
    small: dict[str, Any] = {
        "port": free_port(),
        "max_context": MAX_CONTEXT,
        "dtype": DTYPE,
        "kv_cache_bytes": 64 << 20,
        "threads": 1,
        "on_gpu": ON_GPU,
    }
    return ServerSettings(model=str(model), **(small | changes))


async def connect(served: Served, sender: Sender) -> None:
    """Tell the server where the weights come from."""
    await _post(served, "/init_weight_transfer_engine", {"init_info": sender.init_info()})


async def begin(served: Served) -> None:
    """Pause, and start an update."""
    await _post(served, "/pause?mode=keep")
    await _post(served, "/start_weight_update")


async def send(
    served: Served, sender: Sender, weights: dict[str, torch.Tensor], *, num_buckets: int = 2
) -> None:
    """All weights, in buckets."""
    names = list(weights)
    for start in range(num_buckets):
        bucket = {name: weights[name] for name in names[start::num_buckets]}
        await sender.send(bucket, lambda info: _update(served, info))


async def finish(served: Served, *, version: int) -> None:
    """Swap in, with no cache left."""
    await _post(served, "/finish_weight_update", {"weight_version": str(version)})
    await _post(served, "/reset_prefix_cache?reset_running_requests=true")


async def resume(served: Served) -> None:
    """Go on."""
    await _post(served, "/resume")


async def update(
    served: Served, sender: Sender, weights: dict[str, torch.Tensor], *, version: int = 1
) -> None:
    """A whole update; the server goes on however it ends."""
    try:
        await begin(served)
        await send(served, sender, weights)
        await finish(served, version=version)
    finally:
        await resume(served)


def num_changed(served: Served) -> int:
    """Tensors that the last finished update changed."""
    (worker,) = served.call("/collective_rpc", {"method": "last_weight_update"})["results"]
    return int(worker["changed"])


async def _update(served: Served, info: dict[str, Any]) -> None:
    await _post(served, "/update_weights", {"update_info": info})


async def _post(served: Served, path: str, body: Any = None) -> None:
    await asyncio.to_thread(served.call, path, body or {})


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A float32 model with a tied output layer."""
    return tiny_model(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def served(tiny: Path) -> Iterator[Served]:
    """For tests that leave it as they found it: with the weights of `tiny`, and not paused."""
    with serving(settings_for(tiny)) as running:
        yield running


@pytest.fixture(scope="session")
def served_gloo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Takes weights over TCP; its model has an output layer of its own."""
    untied = tiny_model(tmp_path_factory.mktemp("untied"), tied=False, seed=3)
    with serving(settings_for(untied, backend="agentgym_gloo")) as running:
        yield running
