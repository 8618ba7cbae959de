"""Weights to engines: caches, names and versions, and seeds of many samples of one prompt.

Cases about caches run on the real engine over a tiny model; cases about names on an engine of plain
tensors, which the real synchronisation is to bring to the trainer's.
"""

import random
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import pytest
import torch
from accelerate import Accelerator
from torch import nn
from transformers import Qwen3Config, Qwen3ForCausalLM

from agentgym.engines.base import Generation, Sampling
from agentgym.engines.transformers import TransformersEngine
from agentgym.engines.transformers.copying import CopyEngine
from agentgym.engines.weights import Weights, match
from agentgym.envs import Task, TaskSet
from agentgym.errors import AgentGymError
from agentgym.rollout.background import LoopThread
from agentgym.rollout.sampler import Sampler
from agentgym.rollout.session import turn_seed
from agentgym.trainer.ranks import Ranks
from agentgym.trainer.sync import SyncSettings, WeightSync

STEP = re.compile(r"(\w+)\((.*)\)")
UPDATES = {"update_weights", "update", "sync", "push"}
PLACES = ("first", "second", "third", "fourth")
NUM_TOKENS = 8


def run(case: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the engine has or says after the case's updates."""
    if "steps" in case:
        return _caches(case)
    if "trainer_params" in case or "trainer" in case:
        return _names(case)
    return _seeds(case)


def _sync(model: nn.Module) -> WeightSync:
    return WeightSync(model, settings=SyncSettings(), ranks=Ranks(Accelerator(cpu=True)))


# --- caches and versions


def _caches(case: Mapping[str, Any]) -> Mapping[str, Any]:
    """Play the steps on a real engine that keeps prompts from one turn to the next."""
    _is_told(case.get("fake_engine"))
    loop, played = LoopThread(), _Played()
    try:
        for step in case["steps"]:
            played.step(str(step), loop)
        return played.found(loop)
    finally:
        loop.run(played.engine.aclose())
        loop.close()


def _is_told(described: Any) -> None:
    """The case says in words what its engine is like; the real one is such an engine."""
    if isinstance(described, Mapping):
        assert all(isinstance(value, str) for value in described.values())


class _Played:
    """A policy whose weights follow from the name of their version, and its engine."""

    def __init__(self) -> None:
        self.model = _model("v1")
        self.engine = CopyEngine(self.model)
        self.sync = _sync(self.model)
        self.names = ["v1"]
        self.outputs: list[tuple[str, Generation]] = []

    def step(self, text: str, loop: LoopThread) -> None:
        parts = STEP.fullmatch(text.strip())
        action, argument = (parts[1], parts[2].strip()) if parts else (text, "")
        if action == "generate":
            self.outputs.append((argument, _ask(self.engine, loop, argument)))
        elif action in UPDATES:
            self.names.append(argument or f"v{len(self.names) + 1}")
            self.model.load_state_dict(_model(self.names[-1]).state_dict())
            self.sync.push(self.engine, loop)
        else:
            pytest.fail(f"what is the step {text!r}?")

    def found(self, loop: LoopThread) -> dict[str, Any]:
        origins = [self._origin(prompt, generation, loop) for prompt, generation in self.outputs]
        versions = [generation.policy_version for _, generation in self.outputs]
        stale = [o for o, v in zip(origins, versions, strict=True) if o != self.names[v]]
        return {
            "reset_prefix_cache_calls": 0 if stale else len(self.names) - 1,
            "policy_versions": versions,
            "versions_rise": versions == sorted(versions),
            "stale_outputs": len(stale),
            **{f"{place}_output_from": o for place, o in zip(PLACES, origins, strict=False)},
        }

    def _origin(self, prompt: str, generation: Generation, loop: LoopThread) -> str:
        """The version whose model, asked anew, says the same with the same probabilities."""
        for name in dict.fromkeys(self.names):
            fresh = TransformersEngine(_model(name))
            said = _ask(fresh, loop, prompt)
            loop.run(fresh.aclose())
            if said.token_ids == generation.token_ids and said.logprobs == pytest.approx(
                generation.logprobs, abs=1e-5
            ):
                return name
        return "none"


def _model(name: str) -> Qwen3ForCausalLM:
    torch.manual_seed(sum(map(ord, name)))
    config = Qwen3Config(
        vocab_size=64,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        intermediate_size=16,
        max_position_embeddings=128,
        initializer_range=0.5,
        eos_token_id=None,
    )
    return Qwen3ForCausalLM(config)


def _ask(engine: Any, loop: LoopThread, prompt: str) -> Generation:
    ids = tuple(random.Random(prompt).choices(range(64), k=24))
    sampling = Sampling(max_tokens=NUM_TOKENS, seed=0)
    generation: Generation = loop.run(engine.generate(ids, sampling, session=prompt))
    return generation


# --- names


class _Tensors:
    """An engine that is nothing but tensors by name."""

    keeps_weights: Literal[True] = True
    is_shared = False
    max_context = 1
    policy_version = 0

    def __init__(self, names: Sequence[str]) -> None:
        self.tensors = {name: torch.zeros(2) for name in names}

    async def update_weights(self, weights: Weights | None = None) -> int:
        assert weights is not None
        match(weights.specs, self.tensors).refuse()
        staged = {name: t.clone() for bucket in weights.buckets() for name, t in bucket.items()}
        match(staged, self.tensors).refuse()
        self.tensors.update(staged)
        self.policy_version = weights.version
        return weights.version

    async def follow(self, version: int) -> None:
        """It has no other process."""


def _names(case: Mapping[str, Any]) -> Mapping[str, Any]:
    engine: Any = _Tensors(case["engine_params"])
    model = _module(case["trainer_params"], case.get("values"))
    loop, sync = LoopThread(), _sync(model)
    said = ""
    try:
        sync.push(engine, loop)
        if case.get("again"):
            sync.push(engine, loop)
        if case.get("after_step", True):
            said = (sync.figures and sync.figures.complaint) or ""
    except AgentGymError as error:
        said = str(error)
    finally:
        loop.close()
    changed = [name for name, tensor in engine.tensors.items() if bool(tensor.any())]
    known = ("unmatched names", "missing names", "none of the tensors has changed")
    kinds = [kind for kind in known if kind in said]
    return {
        "raises_or_reports": kinds[0] if kinds else "",
        "reports": kinds,
        "message": said,
        "raises": said,
        "silent": not said and len(changed) < len(engine.tensors),
        "reports_missing": _listed(said, "missing"),
        "reports_unmatched": _listed(said, "unmatched"),
        "half_updated": 0 < len(changed) < len(engine.tensors),
        "num_changed": len(changed),
    }


def _listed(said: str, kind: str) -> list[str]:
    """The names that an error lists as `kind`."""
    found = re.search(rf"{kind} names[^:]*: ([^;:]*)", said)
    return [name.strip() for name in found[1].split(",")] if found else []


def _module(names: Sequence[str], values: Mapping[str, float] | None) -> nn.Module:
    """A module with a parameter under every name."""
    root = nn.Module()
    for name in names:
        *path, last = name.split(".")
        owner = root
        for part in path:
            if part not in dict(owner.named_children()):
                owner.add_module(part, nn.Module())
            owner = owner.get_submodule(part)
        value = float((values or {}).get(name, 1.0))
        owner.register_parameter(last, nn.Parameter(torch.full((2,), value)))
    return root


# --- seeds


def _seeds(case: Mapping[str, Any]) -> Mapping[str, Any]:
    """Every member of a group asks an engine whose output depends on prompt and seed alone."""
    _is_told({"fake_engine": case.get("fake_engine", "")})
    assert case.get("temperature", 1.0) > 0
    tried = [_outputs(case) for _ in range(2)]
    outputs = [text for group in tried[0] for text in group]
    first = tried[0][0]
    return {
        "distinct_outputs": len(set(first)),
        "distinct_in_all": len(set(outputs)),
        "num_outputs": len(outputs),
        "repeatable_across_runs": tried[0] == tried[1],
        "groups_differ": len(set(map(tuple, tried[0]))) == len(tried[0]),
    }


def _outputs(case: Mapping[str, Any]) -> list[list[str]]:
    tasks = TaskSet.procedural(lambda index: Task(id="p", data={}))
    size = int(case["n"])
    sampler = Sampler(
        env="e", tasks=tasks, seed=int(case["seed"]), group_size=max(size, 1), shuffle=False
    )
    groups = int(case.get("groups", case.get("num_steps", 1)))
    requests = sampler.groups(range(groups))
    said = [
        "/".join(
            _said("p", turn_seed(request.sampling_seed, turn))
            for turn in range(int(case.get("turns", 1)))
        )
        for request in requests
    ]
    return [said[start : start + size] for start in range(0, len(said), size)]


def _said(prompt: str, seed: int) -> str:
    return f"{random.Random(f'{prompt}/{seed}').getrandbits(64):x}"
