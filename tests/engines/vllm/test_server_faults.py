"""vLLM's server hangs, is killed and comes back: recovery, or one clear error in time."""

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from vllm_engine_kit import DEADLINES, EXACT, Ground, ModelWeights, bench_at, prompt_of
from vllm_kit import START_S, load, perturbed, weights_of

from agentgym.engines.weights import WeightsLostError
from agentgym.errors import EngineError, OutageError
from agentgym.trainer.tiny_policy import PATH

pytestmark = pytest.mark.vllm

QUICK = replace(DEADLINES, hung_s=1.0, gone_s=2.0, update_s=3.0, resume_s=1.0)


@contextmanager
def stopped(ground: Ground, *, core_only: bool = False) -> Iterator[None]:
    """The server's processes stand still; with `core_only` it still takes requests."""
    assert ground.served is not None
    leader = ground.served.process.pid
    pids = [pid for pid in _group(leader) if not core_only or pid != leader]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def _group(leader: int) -> list[int]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        pid = int(folder.name)
        try:
            if os.getpgid(pid) == leader:
                found.append(pid)
        except ProcessLookupError:
            continue
    return found


@pytest.mark.parametrize("core_only", [False, True])
async def test_a_server_that_stands_still_fails_the_turn_in_time(
    ground: Ground, core_only: bool
) -> None:
    """Also if only the engine core does, behind a server that goes on saying it is healthy."""
    bench = bench_at(ground, QUICK)
    prompt = prompt_of(1)
    before = await bench_at(ground, DEADLINES).ask(prompt)
    await bench.engine.connect()
    turn = asyncio.create_task(bench.ask(prompt, session="t", max_tokens=450))
    await asyncio.sleep(0.2)
    with stopped(ground, core_only=core_only):
        started = time.monotonic()
        with pytest.raises(OutageError, match="was not there within"):
            await turn
        waited = time.monotonic() - started
    after = await bench_at(ground, DEADLINES).ask(prompt)
    await bench.comes_to_rest()
    await bench.engine.aclose()

    assert waited < QUICK.hung_s + QUICK.gone_s + QUICK.hung_s + 3
    assert after == before


async def test_an_update_that_meets_a_server_standing_still_ends_in_time(ground: Ground) -> None:
    """The server wakes up to a request to pause and another one to go on, and goes on."""
    bench = bench_at(ground, QUICK)
    prompt = prompt_of(2)
    before = await bench.ask(prompt)
    weights = ModelWeights(weights_of(perturbed(load(PATH), seed=4)))
    with stopped(ground, core_only=True):
        started = time.monotonic()
        with pytest.raises(EngineError, match=r"weights were not updated.*had"):
            await bench.engine.update_weights(weights)
        assert time.monotonic() - started < QUICK.update_s + QUICK.resume_s + 2
    for _ in range(100):
        if not (await asyncio.to_thread(bench.served.call, "/is_paused"))["is_paused"]:
            break
        await asyncio.sleep(0.05)
    again = await bench.ask(prompt)
    await bench.engine.aclose()

    assert again == before


async def test_a_server_that_was_killed_comes_back_with_other_weights(ground: Ground) -> None:
    """Mid-turn; its answers are refused until it has the policy's weights again."""
    bench = bench_at(ground, replace(DEADLINES, gone_s=START_S))
    version = await bench.update(perturbed(load(PATH), seed=6))
    prompt = prompt_of(3)
    before = await bench.ask(prompt)
    turn = asyncio.create_task(bench.ask(prompt, session="t", max_tokens=450))
    await asyncio.sleep(0.2)
    ground.kill()
    await asyncio.to_thread(ground.start)
    lost = f"weights 'default' instead of '{version}'.*restarted"
    with pytest.raises(WeightsLostError, match=lost):
        await turn
    with pytest.raises(WeightsLostError, match="restarted"):
        await bench.ask(prompt)
    again = await bench.update(bench.model)
    after = await bench.ask(prompt)
    ground.model = bench.model
    await bench.engine.aclose()

    assert (before.policy_version, after.policy_version) == (version, again)
    assert after.token_ids == before.token_ids
    assert bench.error(prompt, after) < EXACT
