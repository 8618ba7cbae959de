"""Turns in flight, for every engine over a model: cancelled, waiting, overtaken, closed."""

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from engine_kit import PROMPT, assert_same, prompt_of

from agentgym.engines.base import Generation, Sampling
from agentgym.engines.transformers import GenerateEngine, TransformersEngine
from agentgym.errors import EngineError

pytestmark = pytest.mark.parametrize("kind", ["slots", "generate"])
MakeBench = Callable[..., Any]


async def test_a_cancelled_turn_leaves_the_others_as_they_are(
    kind: str, make_bench: MakeBench, gate: type[Any]
) -> None:
    bench = make_bench(kind, max_rows=4)
    alone = await bench.ask(PROMPT, max_tokens=40)
    stop = gate(bench.model, calls=8)
    kept = asyncio.create_task(bench.ask(PROMPT, session="kept", max_tokens=40))
    dropped = [
        asyncio.create_task(bench.ask(prompt_of(i), session=str(i), max_tokens=200))
        for i in range(3)
    ]
    await stop.reached()
    for task in dropped:
        task.cancel()
    outcomes = await asyncio.gather(*dropped, return_exceptions=True)
    stop.open()

    assert_same(await kept, alone)
    assert all(isinstance(outcome, asyncio.CancelledError) for outcome in outcomes)


async def test_a_cancelled_turn_frees_its_slot_at_once(
    kind: str, make_bench: MakeBench, gate: type[Any]
) -> None:
    """The only slot is taken by a turn of 200 tokens; the next one must not wait for its end."""
    bench = make_bench(kind, max_rows=1)
    stop = gate(bench.model, calls=6)
    long = asyncio.create_task(bench.ask(PROMPT, max_tokens=200))
    queued = asyncio.create_task(bench.ask(prompt_of(5), session="q", max_tokens=200))
    await stop.reached()
    queued.cancel()
    long.cancel()
    await asyncio.gather(long, queued, return_exceptions=True)
    stop.open()
    await bench.ask(prompt_of(2), session="t", max_tokens=2)

    assert bench.engine.stats.sampled_tokens <= 6 + 2
    assert bench.engine.stats.requests == 1


async def test_more_requests_than_rows_wait_their_turn(kind: str, make_bench: MakeBench) -> None:
    bench = make_bench(kind, max_rows=3)
    prompts = [prompt_of(seed) for seed in range(11)]
    answers = await asyncio.gather(
        *[bench.ask(prompt, session=str(i), seed=i) for i, prompt in enumerate(prompts)]
    )

    assert bench.engine.stats.requests == 11
    assert max(map(bench.logprob_error, prompts, answers)) < 1e-5


async def test_new_weights_are_used_and_stamped(kind: str, make_bench: MakeBench) -> None:
    """A cache that survives the update would mix two policies in one turn."""
    bench = make_bench(kind)
    before = await bench.ask(PROMPT)
    _perturb(bench.model)
    version = await bench.engine.update_weights()
    prompt = [*PROMPT, *before.token_ids, 9]
    after = await bench.ask(prompt)

    assert (before.policy_version, version, after.policy_version) == (0, 1, 1)
    assert bench.engine.policy_version == 1
    assert bench.logprob_error(prompt, after) < 1e-5
    assert bench.logprob_error(PROMPT, before) > 0.01


async def test_a_turn_overtaken_by_an_update_is_sampled_again(
    kind: str, make_bench: MakeBench, gate: type[Any]
) -> None:
    """One turn has one policy version, so tokens of the old weights cannot stay in it."""
    bench = make_bench(kind)
    stop = gate(bench.model, calls=8)
    turns = [
        asyncio.create_task(bench.ask(PROMPT, session=str(seed), seed=seed, max_tokens=30))
        for seed in range(3)
    ]
    await stop.reached()
    _perturb(bench.model)
    update = asyncio.create_task(bench.engine.update_weights())
    await asyncio.sleep(0)
    stop.open()
    assert await update == 1
    overtaken = await asyncio.gather(*turns)
    fresh = [
        await bench.ask(PROMPT, session="fresh", seed=seed, max_tokens=30) for seed in range(3)
    ]

    for one, other in zip(overtaken, fresh, strict=True):
        assert_same(one, other)
    assert {answer.policy_version for answer in overtaken} == {1}


async def test_closing_fails_what_is_in_flight_and_leaves_no_thread(
    kind: str, make_bench: MakeBench, gate: type[Any]
) -> None:
    bench = make_bench(kind, max_rows=2)
    stop = gate(bench.model, calls=4)
    turns = [
        asyncio.create_task(bench.ask(prompt_of(i), session=str(i), max_tokens=200))
        for i in range(4)
    ]
    await stop.reached()
    closing = asyncio.create_task(bench.engine.aclose())
    await asyncio.sleep(0)
    stop.open()
    outcomes = await asyncio.gather(*turns, return_exceptions=True)
    await closing
    await bench.engine.aclose()

    assert [str(outcome) for outcome in outcomes] == ["the engine was closed"] * 4
    assert all(isinstance(outcome, EngineError) for outcome in outcomes)
    assert "agentgym-engine" not in {thread.name for thread in threading.enumerate()}
    with pytest.raises(EngineError, match="closed"):
        await bench.ask(PROMPT)
    with pytest.raises(EngineError, match="closed"):
        await bench.engine.update_weights()
    bench.engine.release("0")


async def test_an_engine_that_was_never_used_has_no_thread(
    kind: str, make_bench: MakeBench
) -> None:
    bench = make_bench(kind)

    assert "agentgym-engine" not in {thread.name for thread in threading.enumerate()}
    await bench.engine.aclose()


async def test_the_event_loop_is_free_while_the_model_computes(
    kind: str, make_bench: MakeBench
) -> None:
    """Tools and environments run meanwhile: each token takes 5 ms, the loop ticks every 1 ms."""
    bench = make_bench(kind)
    bench.model.register_forward_pre_hook(lambda *_: time.sleep(0.005))
    turn = asyncio.create_task(bench.ask(PROMPT, max_tokens=20))
    ticks = 0
    while not turn.done():
        await asyncio.sleep(0.001)
        ticks += 1

    assert ticks > 25


def test_event_loops_may_come_and_go(
    kind: str, make_model: Callable[..., Any], gate: type[Any]
) -> None:
    """The trainer plays each window on a loop of its own; one may die with requests in flight."""
    model = make_model("qwen3" if kind == "slots" else "mistral")
    engine = TransformersEngine(model) if kind == "slots" else GenerateEngine(model)

    async def turn(max_tokens: int) -> Generation:
        settings = Sampling(max_tokens=max_tokens, seed=1)
        return await engine.generate(tuple(PROMPT), settings, session="s")

    first = asyncio.run(turn(8))
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)
    stop = gate(model, calls=4)
    orphan = loop.create_task(turn(20))
    loop.run_until_complete(stop.reached())
    loop.close()
    orphan.get_coro().close()
    stop.open()

    again = asyncio.run(turn(40))
    asyncio.run(engine.aclose())
    assert again.token_ids[:8] == first.token_ids
    assert engine.stats.requests == 3
    assert "agentgym-engine" not in {thread.name for thread in threading.enumerate()}


def _perturb(model: torch.nn.Module) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=_generator))


_generator = torch.Generator().manual_seed(3)
