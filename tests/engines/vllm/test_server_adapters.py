"""LoRA adapters at one server and at several: named by run and version, and nobody else's."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from vllm_protocol_kit import (
    SHORT,
    FakeVllm,
    TestWeights,
    ask,
    engine_over,
    fake,
    status,
    two_servers,
)

from agentgym.engines.weights import WeightsLostError
from agentgym.errors import ConfigError, EngineError, WrongServerError

__all__ = ["fake"]
LORA = {"r": 8, "target_modules": {"q_proj"}}


async def test_an_adapter_is_named_in_the_turns_that_it_samples(fake: FakeVllm) -> None:
    async with engine_over(fake) as engine:
        base = await ask(engine)
        for version in (1, 2, 3):
            await engine.update_weights(TestWeights(version, kind="lora", lora_config=LORA))
            answer = await ask(engine)
            assert answer.policy_version == engine.policy_version == version
        loaded = set(fake.adapters)
    models = [turn["model"] for turn in fake.turns]

    assert models == ["policy", *(f"agentgym-{engine.run}-{version}" for version in (1, 2, 3))]
    assert loaded == set(models[-2:])
    assert base.policy_version == 0
    assert not fake.adapters
    assert not fake.num("/pause")


async def test_an_adapter_that_cannot_be_written_is_one_line(
    fake: FakeVllm, tmp_path: Path
) -> None:
    async with engine_over(fake, adapter_folder=tmp_path / "gone") as engine:
        with pytest.raises(EngineError, match=r"cannot write the adapter .* for the servers: "):
            await engine.update_weights(TestWeights(1, kind="lora"))
        await ask(engine)


async def test_an_adapter_that_a_server_refuses_changes_nothing() -> None:
    async with two_servers() as (one, two, engine):
        await engine.update_weights(TestWeights(1, kind="lora", lora_config=LORA))
        first = await ask(engine)
        two.faults["/v1/load_lora_adapter"].append(status(500, "rank 32 is\ngreater than 16"))
        with pytest.raises(ConfigError, match=f"{two.url} refuses .*rank 32 is greater"):
            await engine.update_weights(TestWeights(2, kind="lora", lora_config=LORA))
        again = [await ask(engine, session=str(i)) for i in range(2)]
        adapters = [set(one.adapters), set(two.adapters)]

    assert again == [first] * 2
    assert adapters == [{f"agentgym-{engine.run}-1"}] * 2


async def test_a_server_that_lost_what_its_adapter_is_for_is_told_at_once(fake: FakeVllm) -> None:
    """It was restarted: turns need not find that out one by one, each after a minute."""
    async with engine_over(fake, deadlines=replace(SHORT, gone_s=30)) as engine:
        await engine.update_weights(TestWeights(1))
        await engine.update_weights(TestWeights(2, kind="lora", lora_config=LORA))
        fake.adapters.clear()
        fake.label = "default"
        with pytest.raises(WeightsLostError, match="'default' instead of '1'"):
            await asyncio.wait_for(ask(engine), 5)


async def test_a_server_that_lost_its_adapter_gets_it_again(fake: FakeVllm) -> None:
    async with engine_over(fake) as engine:
        await engine.update_weights(TestWeights(1, kind="lora", lora_config=LORA))
        first = await ask(engine)
        fake.adapters.clear()
        assert await ask(engine) == first
        fake.adapters.clear()
        assert await asyncio.gather(*(ask(engine, session=s) for s in "abc")) == [first] * 3


async def test_two_runs_on_one_server_sample_each_from_its_own_adapter(fake: FakeVllm) -> None:
    """Both count from 1; what one unloads at its end is its own."""
    weights = TestWeights(1, kind="lora", lora_config=LORA)
    async with engine_over(fake) as one:
        await one.update_weights(weights)
        before = await ask(one)
        async with engine_over(fake) as two:
            await two.update_weights(weights)
            others, after = await ask(two), await ask(one)
        again = await ask(one)

    assert before == after == again
    assert others.token_ids != before.token_ids


async def test_another_process_of_the_run_follows_to_its_adapter_alone(fake: FakeVllm) -> None:
    async with engine_over(fake) as one, engine_over(fake) as two, engine_over(fake) as stranger:
        two.take_part_in(one.run)
        await one.update_weights(TestWeights(1, kind="lora", lora_config=LORA))
        await two.follow(1)
        with pytest.raises(EngineError, match="not version 1"):
            await stranger.follow(1)
        assert await ask(two) == await ask(one)


async def test_an_adapters_name_that_is_taken_is_refused(fake: FakeVllm) -> None:
    """And what has it stays: somebody may sample from it."""
    async with engine_over(fake) as engine:
        name = f"agentgym-{engine.run}-1"
        fake.adapters[name] = "/of/somebody/else"
        with pytest.raises(EngineError, match=f"{fake.url} has an adapter {name} .*own"):
            await engine.update_weights(TestWeights(1, kind="lora", lora_config=LORA))

    assert fake.adapters == {name: "/of/somebody/else"}


async def test_an_adapter_is_not_put_on_weights_that_an_earlier_run_has_left(
    fake: FakeVllm,
) -> None:
    """It was made for those of the model; the probe would find it, and could not say why."""
    fake.label = "7"
    async with engine_over(fake) as engine:
        with pytest.raises(WrongServerError, match=f"{fake.url} has weights of version 7.*again"):
            await engine.update_weights(TestWeights(8, kind="lora", lora_config=LORA))

    assert not fake.adapters
