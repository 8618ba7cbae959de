"""Weights to engines: caches, names and versions, and seeds of many samples of one prompt.

Cases about caches run on the real engines over a tiny model; cases about names on an engine of
plain tensors, which the real synchronisation is to bring to the trainer's; cases about seeds
through the whole loop.
"""

import asyncio
import importlib
import random
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from accelerate import Accelerator
from torch import nn
from transformers import Qwen3Config, Qwen3ForCausalLM

from agentgym.engines.base import Generation, Sampling
from agentgym.engines.transformers import TransformersEngine
from agentgym.engines.transformers.copying import CopyEngine
from agentgym.envs import Task, TaskSet
from agentgym.errors import AgentGymError
from agentgym.rollout import collect
from agentgym.rollout.background import LoopThread
from agentgym.rollout.sampler import Sampler
from agentgym.trainer.ranks import Ranks
from agentgym.trainer.sync import SyncSettings, WeightSync
from agentgym.trainer.windows import Windows
from agentgym.trajectory import RolloutRequest

kit = importlib.import_module("agentgym_cases_loop_kit")
names_kit = importlib.import_module("agentgym_cases_names_kit")

_ENV = "def step(i, action):\n    return 'go on', 1.0"
STEP = re.compile(r"(\w+)\((.*)\)")
UPDATES = {"update_weights", "update", "sync", "push"}
RESTS = {"sleep", "wake", "wake_up", "reset_prefix_cache"}
"""What these engines have no use for: their weights stay, and an update empties their caches."""
TURN = re.compile(r"turn\W*\d*\W*")
AFTER = ("update_after_turn", "updates_after", "update_after")
SIZES = ("n", "group_size", "num_generations", "num_samples")
TIED = ["model.embed_tokens.weight", "lm_head.weight"]
PLACES = ("first", "second", "third", "fourth")
NUM_TOKENS = 8


def run(case: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the engine has or says after the case's updates."""
    if isinstance(steps := case.get("steps"), list):
        _is_told(case.get("fake_engine"))
        return _steps_of_turns(steps) if any(map(TURN.fullmatch, steps)) else _caches(case)
    if "trainer_params" in case:
        return _names(case)
    if any(name in case for name in SIZES):
        return _seeds(case)
    if any(name in case for name in AFTER):
        return _turns(case)
    pytest.fail(f"what is asked by {', '.join(dict.keys(case))}?")  # type: ignore[arg-type]


def _sync(model: nn.Module, **settings: Any) -> WeightSync:
    """With a bucket of its own for each tensor."""
    given = SyncSettings(bucket_bytes=1, **settings)
    return WeightSync(model, settings=given, ranks=Ranks(Accelerator(cpu=True)))


# --- caches and versions


def _caches(case: Mapping[str, Any]) -> Mapping[str, Any]:
    """Play the steps on the trained model's own engine, and on one with a copy of the weights."""
    steps = [str(step) for step in case["steps"]]
    own, copied = (_play(steps, make) for make in (TransformersEngine, CopyEngine))
    return {
        name: found if found == own[name] else [own[name], found] for name, found in copied.items()
    }


def _play(steps: Sequence[str], make: Callable[[Any], Any]) -> dict[str, Any]:
    loop, played = LoopThread(), _Played(make)
    try:
        for step in steps:
            played.step(step, loop)
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

    def __init__(self, make: Callable[[Any], Any]) -> None:
        self.model = _model("v1")
        self.engine = make(self.model)
        self.sync = _sync(self.model)
        self.names = ["v1"]
        self.outputs: list[tuple[str, Generation]] = []
        self.num_resets = 0

    def step(self, text: str, loop: LoopThread) -> None:
        parts = STEP.fullmatch(text.strip())
        action, argument = (parts[1], parts[2].strip()) if parts else (text, "")
        if action == "generate":
            self.outputs.append((argument, _ask(self.engine, loop, argument)))
        elif action in UPDATES:
            self.names.append(argument or f"v{len(self.names) + 1}")
            self.model.load_state_dict(_model(self.names[-1]).state_dict())
            self.sync.push(self.engine, loop)
            self.num_resets += self._is_empty(loop)
        elif action not in RESTS:
            pytest.fail(f"what is the step {text!r}?")

    def _is_empty(self, loop: LoopThread) -> bool:
        """Whether nothing that was asked before is still stored."""
        inner = self.engine._engine if isinstance(self.engine, CopyEngine) else self.engine
        before = inner.stats.reused_tokens
        for number, prompt in enumerate({prompt: None for prompt, _ in self.outputs}):
            _ask(self.engine, loop, prompt, session=f"look {len(self.names)} {number}")
        return bool(inner.stats.reused_tokens == before)

    def found(self, loop: LoopThread) -> dict[str, Any]:
        origins = [self._origin(prompt, generation, loop) for prompt, generation in self.outputs]
        versions = [generation.policy_version for _, generation in self.outputs]
        stale = [o for o, v in zip(origins, versions, strict=True) if o != self.names[v]]
        return {
            "reset_prefix_cache_calls": self.num_resets,
            "policy_versions": versions,
            "weight_versions": [self.names[version] for version in versions],
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


def _ask(engine: Any, loop: LoopThread, prompt: str, *, session: str | None = None) -> Generation:
    ids = tuple(random.Random(prompt).choices(range(64), k=24))
    sampling = Sampling(max_tokens=NUM_TOKENS, seed=0)
    generation: Generation = loop.run(engine.generate(ids, sampling, session=session or prompt))
    return generation


# --- names


def _names(case: Mapping[str, Any]) -> Mapping[str, Any]:
    """Bring the trainer's tensors to an engine's, one per bucket."""
    kind, tied = case.get("kind", "full"), case.get("tied", ())
    trained = names_kit.shapes_of(case["trainer_params"])
    known = names_kit.shapes_of(case["engine_params"], as_in=trained)
    if case.get("tie_word_embeddings"):
        tied = [TIED]
    model = names_kit.module_of(trained, values=_values(case), tied=tied)
    there = [names for names in tied if all(name in known for name in names)]
    engine: Any = names_kit.TensorEngine(
        names_kit.module_of(known, value=0.0, tied=there), fails_after=_fails_after(case, trained)
    )
    loop, sync = LoopThread(), _sync(model, kind=kind)
    said, reported = "", 0
    try:
        sync.push(engine, loop)
        changes = next((case[key] for key in ("changes", "changed") if key in case), None)
        if changes is not None or case.get("again"):
            with torch.no_grad():
                for name in changes or ():
                    model.get_parameter(name).add_(1)
            sync.push(engine, loop)
        reported = sync.figures.num_changed if sync.figures else 0
        if case.get("after_step", True):
            said = (sync.figures and sync.figures.complaint) or ""
    except AgentGymError as error:
        said = str(error)
    finally:
        loop.close()
    told = dict.fromkeys(("reports_changed", "tensors_changed", "num_tensors_changed"), reported)
    return {**_told(said), **_found(engine, said), **told}


def _fails_after(case: Mapping[str, Any], trained: Mapping[str, Any]) -> int | None:
    """Tensors that arrive, where the way breaks."""
    if "fail_at" in case:
        return list(trained).index(case["fail_at"])
    found: int | None = case.get("fails_after")
    return found


def _values(case: Mapping[str, Any]) -> dict[str, float]:
    """Numbers of tensors that are not 1."""
    broken = next((case[key] for key in ("nan_in", "non_finite") if key in case), ())
    names = [broken] if isinstance(broken, str) else broken
    return {**dict.fromkeys(names, float("nan")), **case.get("values", {})}


def _told(said: str) -> dict[str, Any]:
    """What an error, or a complaint, says."""
    known = ("unmatched names", "missing names", "none of the tensors has changed", "the shape")
    kinds = [kind for kind in known if kind in said]
    return {
        "raises_or_reports": kinds[0] if kinds else "",
        "reports": kinds,
        "message": said,
        "raises": said,
        "error": said,
        "reports_missing": _listed(said, "missing"),
        "reports_unmatched": _listed(said, "unmatched"),
    }


def _found(engine: Any, said: str) -> dict[str, Any]:
    """What the engine has."""
    changed, size = engine.changed, len(engine.tensors.by_name)
    return {
        "silent": not said and len(changed) < size,
        "half_updated": 0 < len(changed) < size,
        "num_changed": len(changed),
        "matched": len(changed),
        "changed": changed,
        "engine_values": {n: t.flatten()[0].item() for n, t in engine.tensors.by_name.items()},
        "version": engine.policy_version,
    }


def _listed(said: str, kind: str) -> list[str]:
    """The names that an error lists as `kind`."""
    found = re.search(rf"{kind} names[^:]*: ([^;:]*)", said)
    return [name.strip() for name in found[1].split(",")] if found else []


# --- seeds


def _seeds(case: Mapping[str, Any]) -> Mapping[str, Any]:
    """Every member of a group asks an engine whose output depends on prompt and seed alone.

    At temperature 0 such an engine has no use for the seed.
    """
    _is_told({"fake_engine": case.get("fake_engine", "")})
    if not case.get("same_prompt", True):
        pytest.fail("all samples are of one prompt here")
    first, second, other = (_outputs(case, shift) for shift in (0, 0, 1))
    outputs = [text for group in first for text in group]
    all_differ = len(set(outputs)) == len(outputs)
    return {
        "distinct_outputs": len(set(first[0])),
        "distinct_in_all": len(set(outputs)),
        **dict.fromkeys(("distinct_across_steps", "ranks_differ"), all_differ),
        "num_outputs": len(outputs),
        "repeatable_across_runs": first == second,
        "groups_differ": len(set(map(tuple, first))) == len(first),
        "other_seed_differs": other != first,
    }


def _outputs(case: Mapping[str, Any], shift: int) -> list[list[str]]:
    """What is said, by group and member, in a run whose seed is so much higher."""
    size = int(next(case[name] for name in SIZES if name in case))
    turns = int(case.get("turns", 1))
    renderer = kit.CharRenderer()

    def say(call: Any) -> str:
        prompt = renderer.decode(call.prompt_ids)
        seed = call.sampling.seed if call.sampling.temperature else 0
        return f"{random.Random(f'{prompt}/{seed}').getrandbits(64):x}"

    engine = kit.CallableEngine(
        say, encode=renderer.encode, decode=renderer.decode, stop_token_id=kit.END
    )
    player = kit.player_for(engine, renderer, lambda: kit.Sourced(_ENV, turns))
    sampling = replace(player.sampling, temperature=case.get("temperature", 1.0))
    requests = _requests(case, seed=int(case["seed"]) + shift, size=size)
    played = asyncio.run(collect(requests, replace(player, sampling=sampling)))
    said = ["/".join(m.content for m in o.messages if m.role == "assistant") for o in played]
    return [said[start : start + size] for start in range(0, len(said), size)]


def _requests(case: Mapping[str, Any], *, seed: int, size: int) -> list[RolloutRequest]:
    """What all ranks of a run play, window after window, a group per rank; always one prompt."""
    tasks = TaskSet.procedural(lambda index: Task(id="p", data={"index": index}))
    sampler = Sampler(env="e", tasks=tasks, seed=seed, group_size=size, shuffle=False)
    count = int(case.get("ranks", case.get("world_size", 1)))
    ranks = [
        SimpleNamespace(
            ranks=SimpleNamespace(index=index, count=count),
            args=SimpleNamespace(groups_per_rank=1),
            sampler=sampler,
        )
        for index in range(count)
    ]
    names = ("groups", "num_groups", "num_steps", "steps")
    windows = int(next((case[name] for name in names if name in case), 1))
    return [
        request
        for number in range(windows)
        for trainer in ranks
        for request in Windows.requests(cast(Any, SimpleNamespace(_trainer=trainer)), number)
    ]


# --- versions of turns


def _turns(case: Mapping[str, Any]) -> Mapping[str, Any]:
    """A trajectory between whose turns the weights are updated."""
    after = next(case[name] for name in AFTER if name in case)
    return _turns_with(Counter(after if isinstance(after, list) else [after]), int(case["turns"]))


def _steps_of_turns(steps: Sequence[str]) -> Mapping[str, Any]:
    """A trajectory whose turns, and updates between them, are told one by one."""
    updates, names, turns = Counter[int](), ["v1"], 0
    for step in steps:
        if TURN.fullmatch(step):
            turns += 1
        elif (parts := STEP.fullmatch(step)) and parts[1] in UPDATES and turns:
            names.append(parts[2])
            updates[turns - 1] += 1
        else:
            pytest.fail(f"what is the step {step!r}?")
    return _turns_with(updates, turns, names)


def _turns_with(updates: Counter[int], turns: int, names: Sequence[str] = ()) -> Mapping[str, Any]:
    """Play so many turns, with updates after some of them, whose versions may have names."""
    renderer = kit.CharRenderer()
    engine = _UpdatedBetween(updates, lambda call: f"{call.turn}", renderer)
    player = kit.player_for(engine, renderer, lambda: kit.Sourced(_ENV, turns))
    (output,) = asyncio.run(collect([kit.request()], player))
    versions = [segment.policy_version for segment in output.sampled]
    same = ("policy_versions", "weight_versions", "turn_versions", "versions")
    return {
        **dict.fromkeys(same, [names[v] for v in versions] if names else versions),
        "distinct_versions": len({*versions}),
        "versions_rise": versions == sorted(versions),
        "policy_version": engine.policy_version,
    }


class _UpdatedBetween(kit.CallableEngine):  # type: ignore[misc, name-defined]
    """Gets new weights as soon as certain turns, from 0, were sampled."""

    def __init__(self, updates: Counter[int], policy: Any, renderer: Any) -> None:
        super().__init__(
            policy, encode=renderer.encode, decode=renderer.decode, stop_token_id=kit.END
        )
        self._updates = updates

    async def generate(self, prompt_ids: Any, sampling: Any, *, session: str) -> Any:
        turn = self._turns[session]
        generation = await super().generate(prompt_ids, sampling, session=session)
        for _ in range(self._updates[turn]):
            await self.update_weights()
        return generation
