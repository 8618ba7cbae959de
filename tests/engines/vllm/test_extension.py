"""A real server's weights, step by step over HTTP: what serves is always one whole policy."""

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import torch
import vllm_kit as kit
from vllm_kit import CallError, Served

from agentgym.engines.vllm.transfer import Sender, sender_for

pytestmark = pytest.mark.vllm

LONG = tuple(range(1, 81))
"""More than two blocks of the key/value cache."""
Weights = dict[str, torch.Tensor]


@pytest.fixture
async def shm(served: Served) -> AsyncIterator[Sender]:
    """A connected sender; the server has the weights of its folder again afterwards."""
    sender = sender_for("agentgym_shm")
    await kit.connect(served, sender)
    yield sender
    await kit.update(served, sender, kit.weights_of(kit.load(served.model)), version=0)
    sender.close()


@pytest.mark.parametrize("backend", ["agentgym_shm", "agentgym_gloo"])
async def test_after_an_update_the_server_is_the_new_model(
    backend: str, request: pytest.FixtureRequest
) -> None:
    """Tied and untied, by shared memory and TCP; a prompt that was cached included."""
    name = "served" if backend == "agentgym_shm" else "served_gloo"
    served: Served = request.getfixturevalue(name)
    old, new = kit.load(served.model), kit.perturbed(kit.load(served.model))
    before = served.drift(old, LONG)
    sender = sender_for(backend)
    await kit.connect(served, sender)
    await kit.update(served, sender, kit.weights_of(new), version=41)
    after, choice = served.drift(new, LONG), served.generate(LONG)
    distance = served.drift(old, LONG)
    await kit.update(served, sender, kit.weights_of(old), version=42)
    sender.close()

    assert before < kit.EXACT
    assert after < kit.EXACT
    assert distance > 0.1
    assert [span["version"] for span in choice["weight_versions"]] == ["41"]
    assert served.drift(old, LONG) < kit.EXACT
    assert served.call("/weight_info") == {"weight_version": "42"}


async def test_tensors_that_changed_are_counted(served: Served, shm: Sender) -> None:
    """An optimizer that does nothing shows."""
    weights = kit.weights_of(kit.load(served.model))
    await kit.update(served, shm, weights)
    same = kit.num_changed(served)
    weights["model.norm.weight"] = weights["model.norm.weight"] + 1
    await kit.update(served, shm, weights)

    assert (same, kit.num_changed(served)) == (0, 1)


def without_one(weights: Weights) -> None:
    del weights["model.norm.weight"]


def one_too_many(weights: Weights) -> None:
    weights["model.extra.weight"] = torch.zeros(2)


def wrong_shape(weights: Weights) -> None:
    weights["model.norm.weight"] = torch.zeros(65)


def wrong_kind(weights: Weights) -> None:
    weights["model.norm.weight"] = torch.zeros(64, dtype=torch.int32)


def not_finite(weights: Weights) -> None:
    weights["model.norm.weight"] = torch.full((64,), torch.nan)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (without_one, ("missing: model.norm.weight",)),
        (one_too_many, ("no such tensor in the model: model.extra.weight",)),
        (wrong_shape, ("model.norm.weight is [65] float32, the model's [64] float32",)),
        (wrong_kind, ("model.norm.weight is [64] int32",)),
        (not_finite, ("not finite: model.norm.weight",)),
    ],
)
async def test_wrong_weights_are_refused_and_the_old_ones_serve(
    served: Served, shm: Sender, spoil: Callable[[Weights], None], words: tuple[str, ...]
) -> None:
    """To the bit: nothing of a refused update reaches the model."""
    before = answer(served)
    weights = kit.weights_of(kit.perturbed(kit.load(served.model)))
    spoil(weights)
    with pytest.raises(CallError, match="weights refused") as caught:
        await kit.update(served, shm, weights, version=9)

    assert all(word in str(caught.value) for word in words), caught.value
    assert answer(served) == before


async def test_an_update_that_is_cut_is_forgotten(served: Served, shm: Sender) -> None:
    """The trainer is gone between start and finish; the next one begins from nothing."""
    before = answer(served)
    new = kit.perturbed(kit.load(served.model))
    weights = kit.weights_of(new)
    await kit.begin(served)
    await kit.send(served, shm, dict(list(weights.items())[:5]))
    await kit.resume(served)
    cut = answer(served)
    await kit.update(served, shm, weights)

    assert cut == before
    assert served.drift(new) < kit.EXACT


async def test_a_trainer_that_dies_while_it_sends_leaves_the_old_weights(
    served_gloo: Served,
) -> None:
    """Its end of the line is gone, so the server does not wait for the rest."""
    before = answer(served_gloo)
    started = time.monotonic()
    trainer = await asyncio.to_thread(run_dying_trainer, served_gloo.url)
    served_gloo.call("/resume", {})
    after = answer(served_gloo)
    took = time.monotonic() - started
    sender = sender_for("agentgym_gloo")
    await kit.connect(served_gloo, sender)
    new = kit.perturbed(kit.load(served_gloo.model))
    await kit.update(served_gloo, sender, kit.weights_of(new))
    drift = served_gloo.drift(new)
    await kit.update(served_gloo, sender, kit.weights_of(kit.load(served_gloo.model)))
    sender.close()

    assert trainer.returncode == 7, trainer.stderr
    assert took < 100
    assert after == before
    assert drift < kit.EXACT


def run_dying_trainer(url: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-c", _DYING, url]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


_DYING = """
import json, os, sys, threading, time, urllib.request
from agentgym.engines.vllm.transfer import sender_for

def post(path, body):
    data, kind = json.dumps(body).encode(), {"Content-Type": "application/json"}
    urllib.request.urlopen(urllib.request.Request(sys.argv[1] + path, data, kind), timeout=30)

sender = sender_for("agentgym_gloo")
post("/init_weight_transfer_engine", {"init_info": sender.init_info()})
post("/pause?mode=keep", {})
post("/start_weight_update", {})
entry = {"name": "model.norm.weight", "dtype": "float32", "shape": [64], "offset": 0}
info = {"update_info": {"entries": [entry], "num_bytes": 256}}
threading.Thread(target=post, args=("/update_weights", info), daemon=True).start()
time.sleep(1)
os._exit(7)
"""


def answer(served: Served) -> tuple[Any, Any]:
    """Tokens and logprobs, exactly, of a prompt that no cache holds, and the version."""
    served.call("/reset_prefix_cache", {})
    choice = served.generate(LONG)
    logprobs = [entry["logprob"] for entry in choice["logprobs"]["content"]]
    return (choice["token_ids"], logprobs), served.call("/weight_info")
