"""New weights for vLLM in this process: exact, between two tokens, and all or nothing."""

import asyncio
import os
import tempfile
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
import torch
from vllm_engine_kit import EXACT, ModelWeights, off_by, prompt_of
from vllm_kit import POLICY, load, weights_of
from vllm_local_kit import Local

from agentgym.engines.weights import KeepsWeights, Sleeps
from agentgym.errors import ConfigError, EngineError, OutageError

pytestmark = pytest.mark.vllm
PROMPT = prompt_of(0, 100)


async def test_the_next_turn_is_sampled_with_the_new_weights(local: Local) -> None:
    before = local.model
    version = await local.update(seed=1)
    answer = await local.ask(PROMPT, max_tokens=30)

    assert local.error(PROMPT, answer) < EXACT
    assert off_by(before, PROMPT, answer.token_ids, answer.logprobs) > 0.1
    assert answer.policy_version == local.engine.policy_version == version
    assert answer.token_versions == ()


async def test_what_was_computed_with_old_weights_is_not_used(local: Local) -> None:
    await local.ask(PROMPT)
    await local.update(seed=2)
    reused = local.engine.stats.reused_tokens
    await local.ask(PROMPT)

    assert local.engine.stats.reused_tokens == reused


async def test_a_turn_under_way_goes_on_with_the_new_weights(local: Local) -> None:
    """Each span is exact under the weights it is stamped with."""
    old_version = await local.update(seed=3)
    old = local.model
    turns = [
        asyncio.create_task(local.ask(PROMPT, session=str(seed), seed=seed, max_tokens=300))
        for seed in range(4)
    ]
    await local.steps(20)
    new_version = await local.update(seed=4)

    for answer in await asyncio.gather(*turns):
        spans = [(version, len(list(run))) for version, run in groupby(answer.token_versions)]
        assert [version for version, _ in spans] == [old_version, new_version]
        cut = spans[0][1]
        head, tail = answer.token_ids[:cut], answer.token_ids[cut:]
        assert off_by(old, PROMPT, head, answer.logprobs[:cut]) < EXACT
        assert off_by(local.model, (*PROMPT, *head), tail, answer.logprobs[cut:]) < EXACT


def without(name: str) -> Any:
    return lambda tensors: {key: value for key, value in tensors.items() if key != name}


def changed(name: str, change: Any) -> Any:
    return lambda tensors: {**tensors, name: change(tensors[name])}


NORM = "model.norm.weight"


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (without(NORM), "missing: model.norm.weight"),
        (changed(NORM, lambda t: t[:-1]), r"wrong shape or dtype: model\.norm\.weight"),
        (changed(NORM, lambda t: t * torch.nan), r"not finite: model\.norm\.weight"),
        (lambda tensors: {**tensors, "model.more": tensors[NORM]}, "no such tensor"),
    ],
)
async def test_weights_that_are_not_the_models_change_nothing(
    local: Local, spoil: Any, message: str
) -> None:
    version = local.engine.policy_version
    tensors = {name: tensor + 0.1 for name, tensor in weights_of(local.model).items()}
    with pytest.raises(ConfigError, match=message):
        await local.engine.update_weights(ModelWeights(spoil(tensors)))
    answer = await local.ask(PROMPT)

    assert local.error(PROMPT, answer) < EXACT
    assert answer.policy_version == version


async def test_weights_that_do_not_arrive_change_nothing(local: Local) -> None:
    class Broken(ModelWeights):
        def buckets(self) -> Any:
            yield {NORM: self.tensors[NORM] + 1}
            raise EngineError("the weights were not gathered")

    with pytest.raises(EngineError, match="not gathered"):
        await local.engine.update_weights(Broken(weights_of(local.model)))
    answer = await local.ask(PROMPT)

    assert local.error(PROMPT, answer) < EXACT


async def test_weights_must_be_handed_over(local: Local) -> None:
    assert isinstance(local.engine, KeepsWeights)
    with pytest.raises(ConfigError, match="hand over"):
        await local.engine.update_weights()


async def test_only_one_update_at_a_time(local: Local) -> None:
    first = asyncio.create_task(local.update(seed=5))
    await asyncio.sleep(0)
    with pytest.raises(EngineError, match="already"):
        await local.engine.update_weights(ModelWeights({}))
    await first


async def test_sleep_is_harmless_and_refused_while_turns_run(local: Local) -> None:
    """On CPU there is nothing to give away."""
    assert isinstance(local.engine, Sleeps)
    turn = asyncio.create_task(local.ask(PROMPT, max_tokens=200))
    await local.steps(3)
    with pytest.raises(EngineError, match="1 turns are being sampled"):
        await local.engine.sleep()
    await turn
    await local.engine.sleep()
    await local.engine.sleep()
    version = await local.update(seed=6)
    answer = await local.ask(PROMPT)

    assert local.error(PROMPT, answer) < EXACT
    assert answer.policy_version == version


async def test_a_swap_that_fails_half_way_ends_all_sampling(
    local: Local, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Turns under way would go on with keys and values, or weights, that nobody knows."""

    def fail(**_: object) -> None:
        raise RuntimeError("out of memory")

    core = local.engine._core
    turn = asyncio.create_task(local.ask(PROMPT, max_tokens=400))
    await local.steps(3)
    with monkeypatch.context() as broken:
        broken.setattr(core._engine, "reset_prefix_cache", fail)
        failed = await asyncio.gather(local.update(seed=8), return_exceptions=True)
    ends = await asyncio.gather(turn, local.ask(PROMPT), return_exceptions=True)
    core._trouble = None  # for the tests that share it
    await local.update(seed=8)

    assert str(failed[0]).endswith("RuntimeError: out of memory; make a new engine")
    assert [type(end) for end in ends] == [OutageError] * 2
    assert "out of memory" in str(ends[0])
    assert local.error(PROMPT, await local.ask(PROMPT)) < EXACT


def adapter_over(model: Any, *, seed: int, rank: int = 4) -> Any:
    """A PEFT model with an adapter that does something."""
    from peft import LoraConfig, get_peft_model

    settings = LoraConfig(r=rank, lora_alpha=16, target_modules="all-linear", task_type="CAUSAL_LM")
    adapted = get_peft_model(model, settings)
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in adapted.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(parameter, std=0.1, generator=generator)
    return adapted.eval()


def adapter_weights(adapted: Any) -> ModelWeights:
    from peft import get_peft_model_state_dict

    config = adapted.peft_config["default"].to_dict()
    tensors = get_peft_model_state_dict(adapted)
    return ModelWeights(tensors, kind="lora", lora_config=config)


async def test_an_adapter_alone_is_the_policy(local: Local) -> None:
    """Turns under way end with the adapter they began with; full weights replace adapters."""
    base = ModelWeights(weights_of(load(POLICY)))
    await local.engine.update_weights(base)
    one, other = adapter_over(load(POLICY), seed=1), adapter_over(load(POLICY), seed=2)
    versions = [await local.engine.update_weights(adapter_weights(one))]
    turn = asyncio.create_task(local.ask(PROMPT, max_tokens=200))
    await local.steps(5)
    versions.append(await local.engine.update_weights(adapter_weights(other)))
    answers = [await turn, await local.ask(PROMPT, max_tokens=30)]

    for adapted, version, answer in zip((one, other), versions, answers, strict=True):
        assert off_by(adapted, PROMPT, answer.token_ids, answer.logprobs) < EXACT
        assert (answer.policy_version, answer.token_versions) == (version, ())
    folders = [adapter.folder for adapter in local.engine._core._adapters._loaded]
    assert [folder.is_dir() for folder in folders] == [True]
    await local.update(seed=7)
    answer = await local.ask(PROMPT)
    assert local.error(PROMPT, answer) < EXACT
    assert not folders[0].exists()


async def test_steps_that_fail_twice_in_a_row_end_all_sampling(
    local: Local, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a window would be trained on what had ended before: the shortest trajectories."""

    def fail() -> None:
        raise RuntimeError("illegal memory access")

    core = local.engine._core
    for kinds in ([EngineError], [EngineError, OutageError, OutageError]):
        with monkeypatch.context() as broken:
            broken.setattr(core._engine, "step", fail)
            for kind in kinds:
                with pytest.raises(kind, match="illegal memory access"):
                    await local.ask(PROMPT)
        core._trouble = None  # for the tests that share it
        assert local.error(PROMPT, await local.ask(PROMPT)) < EXACT


async def test_an_adapter_that_is_not_finite_leaves_no_file(
    local: Local, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    endless = ModelWeights({"a": torch.tensor([torch.inf])}, kind="lora")
    with pytest.raises(ConfigError, match="tensor a holds values that are not finite"):
        await local.engine.update_weights(endless)

    assert os.listdir(tmp_path) == []


async def test_an_adapter_that_is_none_for_the_model_changes_nothing(local: Local) -> None:
    too_high = adapter_weights(adapter_over(load(POLICY), seed=1, rank=16))
    with pytest.raises(ConfigError, match=r"refuses the adapter .*rank") as caught:
        await local.engine.update_weights(too_high)
    answer = await local.ask(PROMPT)

    assert "\n" not in str(caught.value)
    assert local.error(PROMPT, answer) < EXACT
