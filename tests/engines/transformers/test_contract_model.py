"""The model under every engine: left as it was, and what follows when its forward call fails."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import torch
from engine_kit import PROMPT, assert_same, prompt_of

from agentgym.engines.base import Generation
from agentgym.errors import EngineError

pytestmark = pytest.mark.parametrize("kind", ["slots", "generate"])
MakeBench = Callable[..., Any]


async def test_the_model_is_as_before_when_the_answer_comes(
    kind: str, make_bench: MakeBench
) -> None:
    """The trainer goes on with it at once: training flags, checkpointing, attention, defaults."""
    bench = make_bench(kind)
    bench.model.train()
    bench.model.gradient_checkpointing_enable()
    layers = bench.model.get_decoder().layers
    layers[1].eval()
    bench.model.generation_config.repetition_penalty = 7.0
    before = [module.training for module in bench.model.modules()]

    answer = await bench.ask(PROMPT)

    assert [module.training for module in bench.model.modules()] == before
    assert bench.model.generation_config.repetition_penalty == 7.0
    assert all(parameter.grad is None for parameter in bench.model.parameters())
    bench.model.eval()
    assert bench.logprob_error(PROMPT, answer) < 1e-5


async def test_the_model_is_as_before_when_the_last_turn_is_cancelled(
    kind: str, make_bench: MakeBench, gate: type[Any]
) -> None:
    bench = make_bench(kind)
    bench.model.train()
    stop = gate(bench.model, calls=3)
    turn = asyncio.create_task(bench.ask(PROMPT, max_tokens=100))
    await stop.reached()
    turn.cancel()
    await asyncio.gather(turn, return_exceptions=True)
    stop.open()
    await bench.engine.update_weights()

    assert all(module.training for module in bench.model.modules())


async def test_dropout_is_off_while_sampling(kind: str, make_bench: MakeBench) -> None:
    bench = make_bench(kind)
    for layer in bench.model.get_decoder().layers:
        layer.self_attn.attention_dropout = 0.9
    bench.model.train()

    answer = await bench.ask(PROMPT)

    bench.model.eval()
    assert bench.logprob_error(PROMPT, answer) < 1e-5


async def test_a_failing_forward_call_fails_its_requests_and_no_later_ones(
    kind: str, make_bench: MakeBench
) -> None:
    bench = make_bench(kind)
    alone = await bench.ask(PROMPT)

    def fail(*_: object) -> None:
        raise RuntimeError("out of memory")

    hook = bench.model.register_forward_pre_hook(fail)
    outcomes = await asyncio.gather(
        *[bench.ask(PROMPT, session=str(i)) for i in range(3)], return_exceptions=True
    )
    hook.remove()

    assert all(isinstance(outcome, EngineError) for outcome in outcomes)
    assert "RuntimeError: out of memory" in str(outcomes[0])
    assert_same(await bench.ask(PROMPT), alone)


async def test_a_turn_that_was_over_before_the_failure_is_delivered(
    kind: str, make_bench: MakeBench
) -> None:
    bench = make_bench(kind)
    calls = 0

    def fail_late(*_: object) -> None:
        nonlocal calls
        calls += 1
        if calls == 12:
            raise RuntimeError("out of memory")

    bench.model.register_forward_pre_hook(fail_late)
    turns = [bench.ask(PROMPT, max_tokens=2), bench.ask(PROMPT, session="long", max_tokens=60)]
    outcomes = await asyncio.gather(*turns, return_exceptions=True)

    assert isinstance(outcomes[0], Generation)
    assert isinstance(outcomes[1], EngineError)


async def test_weights_that_are_not_finite_fail_the_turn_and_leave_no_trace(
    kind: str, make_bench: MakeBench
) -> None:
    """NaN in a stored value would survive masking, since 0 * NaN is NaN: a longer turn in the same
    batch makes attention look at what the short one has left behind."""
    bench = make_bench(kind)
    alone = await bench.ask(PROMPT)
    weight = bench.model.get_decoder().layers[0].self_attn.v_proj.weight
    kept = weight.detach().clone()
    with torch.no_grad():
        weight.fill_(torch.nan)
    await bench.engine.update_weights()
    with pytest.raises(EngineError, match="not finite"):
        await bench.ask(prompt_of(1, 60), max_tokens=60)
    with torch.no_grad():
        weight.copy_(kept)
    await bench.engine.update_weights()
    again, longer = await asyncio.gather(
        bench.ask(PROMPT), bench.ask(prompt_of(2, 70), session="longer")
    )

    assert again.token_ids == alone.token_ids
    assert again.logprobs == pytest.approx(alone.logprobs, abs=1e-5)
    assert bench.logprob_error(prompt_of(2, 70), longer) < 1e-5
