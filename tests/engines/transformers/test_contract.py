"""What every engine over a model samples: slot engine and batched `generate()` alike."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import torch
from engine_kit import PROMPT, assert_same, prompt_of

from agentgym.errors import ConfigError, EngineError

pytestmark = pytest.mark.parametrize("kind", ["slots", "generate"])
MakeBench = Callable[..., Any]


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
