"""What holds for every engine over a model: slot engine and batched `generate()` alike."""

import asyncio
import random
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch

from agentgym.engines.base import Generation, Sampling
from agentgym.engines.transformers import GenerateEngine, TransformersEngine
from agentgym.errors import ConfigError, EngineError

pytestmark = pytest.mark.parametrize("kind", ["slots", "generate"])
MakeBench = Callable[..., Any]
PROMPT = list(range(3, 33))


def prompt_of(seed: int, length: int = 20) -> list[int]:
    return random.Random(seed).choices(range(64), k=length)


async def test_logprobs_are_those_of_a_plain_forward_call(kind: str, make_bench: MakeBench) -> None:
    """Step-0 invariant of training; prompts of all lengths, so padding is in play."""
    bench = make_bench(kind)
    prompts = [prompt_of(seed, 1 + 7 * seed) for seed in range(8)]
    answers = await asyncio.gather(
        *[bench.ask(prompt, session=str(i), seed=i) for i, prompt in enumerate(prompts)]
    )

    for prompt, answer in zip(prompts, answers, strict=True):
        assert len(answer.token_ids) == 8
        assert bench.logprob_error(prompt, answer) < 1e-5


async def test_greedy_is_what_transformers_generates(kind: str, make_bench: MakeBench) -> None:
    bench = make_bench(kind)
    answer = await bench.ask(PROMPT, temperature=0.0, max_tokens=30)

    theirs = bench.model.generate(torch.tensor([PROMPT]), max_new_tokens=30, do_sample=False)
    assert list(answer.token_ids) == theirs[0, len(PROMPT) :].tolist()
    assert bench.logprob_error(PROMPT, answer) < 1e-5


async def test_temperature_divides_the_logits(kind: str, make_bench: MakeBench) -> None:
    bench = make_bench(kind)
    answer = await bench.ask(PROMPT, temperature=1.7)

    ids = torch.tensor([[*PROMPT, *answer.token_ids]])
    with torch.no_grad():
        logits = bench.model(ids).logits[0, len(PROMPT) - 1 : -1] / 1.7
    expected = logits.log_softmax(-1).gather(1, torch.tensor(answer.token_ids)[:, None])[:, 0]
    torch.testing.assert_close(torch.tensor(answer.logprobs), expected, atol=1e-5, rtol=0)


async def test_a_seed_gives_the_same_tokens_alone_and_among_others(
    kind: str, make_bench: MakeBench
) -> None:
    """Others join and leave at random while the turn runs."""
    bench = make_bench(kind, max_rows=16)
    alone = await bench.ask(PROMPT, max_tokens=30)

    async def other(index: int) -> None:
        await asyncio.sleep(0.002 * (index % 5))
        await bench.ask(prompt_of(index, 5 + index), session=str(index), max_tokens=3 + 2 * index)

    others = [asyncio.create_task(other(index)) for index in range(15)]
    crowded = await bench.ask(PROMPT, session="again", max_tokens=30)
    await asyncio.gather(*others)

    assert_same(crowded, alone)


async def test_different_seeds_give_different_turns(kind: str, make_bench: MakeBench) -> None:
    bench = make_bench(kind)
    answers = await asyncio.gather(
        *[bench.ask(PROMPT, session=str(seed), seed=seed, max_tokens=12) for seed in range(8)]
    )

    assert len({answer.token_ids for answer in answers}) == 8


async def test_settings_belong_to_the_request(kind: str, make_bench: MakeBench) -> None:
    """Requests with every kind of setting in one batch get what they would get alone."""
    settings: list[dict[str, Any]] = [
        {"temperature": 0.0},
        {"temperature": 0.5},
        {"top_k": 3},
        {"top_p": 0.6, "max_tokens": 3},
        {"temperature": 2.0, "top_k": 10, "top_p": 0.9, "stop_token_ids": frozenset(range(16))},
        {},
    ]
    bench = make_bench(kind)
    alone = [await bench.ask(PROMPT, session="x", **own) for own in settings]
    together = await asyncio.gather(
        *[bench.ask(PROMPT, session=str(i), **own) for i, own in enumerate(settings)]
    )

    assert [answer.token_ids for answer in together] == [answer.token_ids for answer in alone]


async def test_a_stop_token_ends_the_turn_and_is_part_of_it(
    kind: str, make_bench: MakeBench
) -> None:
    bench = make_bench(kind)
    free = await bench.ask(PROMPT, max_tokens=20)
    stop = free.token_ids[5]

    stopped = await bench.ask(PROMPT, max_tokens=20, stop_token_ids=frozenset({stop, 1000}))

    first = free.token_ids.index(stop)
    assert stopped.token_ids == free.token_ids[: first + 1]
    assert stopped.finish_reason == "stop"
    assert free.finish_reason == "length"


def letters(ids: Any) -> str:
    """Tokens of one to three characters."""
    return "".join("abc"[i % 3] * (1 + i % 2) + "." * (i % 5 == 0) for i in ids)


async def test_a_stop_string_ends_the_turn_with_the_token_that_completes_it(
    kind: str, make_bench: MakeBench
) -> None:
    """Strings that lie inside one token, across several and at the very end of the budget, in one
    batch with a turn that has none; whole tokens are kept, with the very logprobs of a free run."""
    bench = make_bench(kind, decode=letters)
    free = await bench.ask(PROMPT, max_tokens=20)
    text = letters(free.token_ids)
    stops = [text[start : start + size] for start in (0, 7, 15, 22) for size in (1, 4, 8)]
    stopped = await asyncio.gather(
        *[
            bench.ask(PROMPT, session=stop, max_tokens=20, stop=("never", stop) if stop else ())
            for stop in [*stops, "", text]
        ]
    )

    for stop, answer in zip([*stops, "never", text], stopped, strict=True):
        lengths = (n for n in range(1, 21) if stop in letters(free.token_ids[:n]))
        kept = next(lengths, 20)
        assert answer.token_ids == free.token_ids[:kept]
        assert answer.logprobs == pytest.approx(free.logprobs[:kept], abs=1e-5)
        assert answer.finish_reason == ("length" if stop == "never" else "stop_string")


async def test_a_turn_that_starts_again_still_finds_its_stop_string(
    kind: str, make_bench: MakeBench, gate: type[Any]
) -> None:
    bench = make_bench(kind, decode=letters)
    free = await bench.ask(PROMPT, max_tokens=20)
    stop = letters(free.token_ids)[5:10]
    calm = await bench.ask(PROMPT, max_tokens=20, stop=(stop,))
    hold = gate(bench.model, calls=2)
    turn = asyncio.create_task(bench.ask(PROMPT, session="t", max_tokens=20, stop=(stop,)))
    await hold.reached()
    update = asyncio.create_task(bench.engine.update_weights())
    await asyncio.sleep(0)
    hold.open()
    await update

    assert (await turn).token_ids == calm.token_ids
    assert calm.finish_reason == "stop_string"


async def test_stop_strings_need_a_decoder(kind: str, make_bench: MakeBench) -> None:
    bench = make_bench(kind)

    with pytest.raises(ConfigError, match="without `decode`"):
        await bench.ask(PROMPT, stop=("x",))


async def test_the_context_ends_a_turn_with_length(kind: str, make_bench: MakeBench) -> None:
    bench = make_bench(kind, max_context=40)
    answer = await bench.ask(PROMPT, max_tokens=100)
    longest = prompt_of(1, 39)
    last = await bench.ask(longest, max_tokens=100, session="t")

    assert len(PROMPT) + len(answer.token_ids) == bench.engine.max_context == 40
    assert (answer.finish_reason, last.finish_reason) == ("length", "length")
    assert len(last.token_ids) == 1
    assert bench.logprob_error(longest, last) < 1e-5


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        (list(range(40)), r"40 tokens leaves no room in a context of 40"),
        ([], "the prompt is empty"),
        ([1, 64], r"token id 64; the model knows 0 to 63"),
        ([1, -1], r"token id -1; the model knows 0 to 63"),
    ],
)
async def test_a_prompt_that_cannot_be_served_is_refused_alone(
    kind: str, make_bench: MakeBench, prompt: list[int], message: str
) -> None:
    """In the batch it would take every other request down with it."""
    bench = make_bench(kind, max_context=40)
    fine = asyncio.create_task(bench.ask(PROMPT))

    with pytest.raises(EngineError, match=message):
        await bench.ask(prompt, session="t")
    assert len((await fine).token_ids) == 8


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


def assert_same(one: Generation, other: Generation) -> None:
    """Equal but for the rounding that the shape of a batch brings."""
    assert one.token_ids == other.token_ids
    assert one.logprobs == pytest.approx(other.logprobs, abs=1e-5)
    assert (one.finish_reason, one.policy_version) == (other.finish_reason, other.policy_version)


def _perturb(model: torch.nn.Module) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=_generator))


_generator = torch.Generator().manual_seed(3)
