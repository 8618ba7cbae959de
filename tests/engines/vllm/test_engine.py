"""What vLLM in this process samples: the contract of every engine, exact in float32."""

import asyncio
from typing import Any

import pytest
import torch
from vllm_engine_kit import CONTEXT, EXACT, prompt_of
from vllm_kit import POLICY
from vllm_local_kit import Local

from agentgym.constraint import Constraint
from agentgym.engines.base import Generation
from agentgym.engines.loading import load_tokenizer
from agentgym.errors import ConfigError, EngineError

pytestmark = pytest.mark.vllm
PROMPT = prompt_of(0)


async def test_logprobs_are_those_of_a_plain_forward_call(local: Local) -> None:
    prompts = [prompt_of(seed, 1 + 37 * seed) for seed in range(8)]
    answers = await asyncio.gather(
        *[local.ask(prompt, session=str(i), seed=i) for i, prompt in enumerate(prompts)]
    )

    for prompt, answer in zip(prompts, answers, strict=True):
        assert len(answer.token_ids) == 8
        assert local.error(prompt, answer) < EXACT


async def test_temperature_divides_the_logits(local: Local) -> None:
    answer = await local.ask(PROMPT, temperature=1.7)

    ids = torch.tensor([[*PROMPT, *answer.token_ids]])
    with torch.no_grad():
        logits = local.model(ids).logits[0, len(PROMPT) - 1 : -1] / 1.7
    expected = logits.log_softmax(-1).gather(1, torch.tensor(answer.token_ids)[:, None])[:, 0]
    torch.testing.assert_close(torch.tensor(answer.logprobs), expected, atol=EXACT, rtol=0)


async def test_greedy_reports_the_plain_distribution(local: Local) -> None:
    """Alone, and in a batch with turns that are sampled."""
    alone = await local.ask(PROMPT, temperature=0.0, max_tokens=20)
    crowded, _ = await asyncio.gather(
        local.ask(PROMPT, temperature=0.0, max_tokens=20),
        local.ask(PROMPT, temperature=0.5, max_tokens=20),
    )

    theirs = local.model.generate(
        torch.tensor([PROMPT]), max_new_tokens=20, do_sample=False, eos_token_id=None
    )
    assert list(alone.token_ids) == theirs[0, len(PROMPT) :].tolist()
    assert crowded.token_ids == alone.token_ids
    assert max(local.error(PROMPT, answer) for answer in (alone, crowded)) < EXACT


async def test_a_seed_gives_the_same_tokens_alone_and_among_others(local: Local) -> None:
    alone = await local.ask(PROMPT, max_tokens=30)

    async def other(index: int) -> None:
        await asyncio.sleep(0.002 * (index % 5))
        await local.ask(prompt_of(index, 5 + index), session=str(index), max_tokens=3 + 2 * index)

    others = [asyncio.create_task(other(index)) for index in range(15)]
    crowded = await local.ask(PROMPT, session="again", max_tokens=30)
    await asyncio.gather(*others)

    assert crowded.token_ids == alone.token_ids
    assert crowded.logprobs == pytest.approx(alone.logprobs, abs=EXACT)


async def test_different_seeds_give_different_turns(local: Local) -> None:
    answers = await asyncio.gather(
        *[local.ask(PROMPT, session=str(seed), seed=seed, max_tokens=12) for seed in range(8)]
    )

    assert len({answer.token_ids for answer in answers}) == 8


async def test_settings_belong_to_the_request(local: Local) -> None:
    settings: list[dict[str, Any]] = [
        {"temperature": 0.0},
        {"temperature": 0.5},
        {"top_k": 3},
        {"top_p": 0.6, "max_tokens": 3},
        {"temperature": 2.0, "top_k": 10, "top_p": 0.9, "stop_token_ids": frozenset(range(16))},
        {},
    ]
    alone = [await local.ask(PROMPT, **own) for own in settings]
    together = await asyncio.gather(
        *[local.ask(PROMPT, session=str(i), **own) for i, own in enumerate(settings)]
    )

    assert [answer.token_ids for answer in together] == [answer.token_ids for answer in alone]


async def test_only_what_is_asked_for_ends_a_turn(local: Local) -> None:
    """Not the model's own end-of-sequence token; a stop token is part of the turn."""
    free = await local.ask(PROMPT, max_tokens=300)
    last = free.token_ids[20]
    stopped = await local.ask(PROMPT, max_tokens=300, stop_token_ids=frozenset({last, 100_000}))

    first = free.token_ids.index(last)
    assert (len(free.token_ids), free.finish_reason) == (300, "length")
    assert (stopped.token_ids, stopped.finish_reason) == (free.token_ids[: first + 1], "stop")


HALF_A_CHARACTER = "\ufffd"


async def test_a_stop_string_ends_the_turn_with_the_token_that_completes_it(local: Local) -> None:
    decode = load_tokenizer(str(POLICY)).decode
    free = await local.ask(PROMPT, max_tokens=30)
    said = (str(decode(free.token_ids[n : n + 3])).strip() for n in range(10, 28))
    stop = next(text for text in said if text and HALF_A_CHARACTER not in text)
    stopped = await local.ask(PROMPT, max_tokens=30, stop=("never", stop))

    kept = next(n for n in range(1, 31) if stop in decode(free.token_ids[:n]))
    assert (stopped.token_ids, stopped.finish_reason) == (free.token_ids[:kept], "stop_string")
    assert len(stopped.logprobs) == kept


async def test_the_context_ends_a_turn_with_length(local: Local) -> None:
    longest = prompt_of(1, CONTEXT - 1)
    answer, last = await asyncio.gather(
        local.ask(prompt_of(2, 500), max_tokens=100), local.ask(longest, max_tokens=100)
    )

    assert local.engine.max_context == CONTEXT
    assert (len(answer.token_ids), answer.finish_reason) == (12, "length")
    assert (len(last.token_ids), last.finish_reason) == (1, "length")


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ((5,) * CONTEXT, "leaves no room in a context of 512"),
        ((), "the prompt is empty"),
        ((1, 10**6), "holds token id 1000000; the model knows 0 to"),
    ],
)
async def test_a_prompt_that_cannot_be_served_is_refused_alone(
    local: Local, prompt: tuple[int, ...], message: str
) -> None:
    fine = asyncio.create_task(local.ask(PROMPT))

    with pytest.raises(EngineError, match=message):
        await local.ask(prompt)
    assert len((await fine).token_ids) == 8


async def test_a_constraint_holds_and_its_logprobs_are_of_what_it_left(local: Local) -> None:
    constraint = Constraint(regex="[ab]{3,5}")
    answer = await local.ask(PROMPT, constraint=constraint, stop_token_ids=frozenset({2}))

    text = load_tokenizer(str(POLICY)).decode(answer.token_ids, skip_special_tokens=True)
    assert 3 <= len(text.strip()) <= 5
    assert set(text.strip()) <= {"a", "b"}
    assert local.error(PROMPT, answer) > 0.1


async def test_a_constraint_that_is_none_fails_its_turn_alone(local: Local) -> None:
    fine = asyncio.create_task(local.ask(PROMPT))

    with pytest.raises(EngineError, match="vLLM cannot enforce") as caught:
        await local.ask(PROMPT, constraint=Constraint(regex="(a"))
    assert "\n" not in str(caught.value)
    assert len((await fine).token_ids) == 8


async def test_a_temperature_that_vllm_would_change_is_refused(local: Local) -> None:
    with pytest.raises(ConfigError, match=r"temperature=0\.001"):
        await local.ask(PROMPT, temperature=0.001)


async def test_a_cancelled_turn_is_freed_at_once(local: Local) -> None:
    turn = asyncio.create_task(local.ask(PROMPT, max_tokens=400))
    await local.steps(3)
    turn.cancel()
    with pytest.raises(asyncio.CancelledError):
        await turn
    steps = local.engine.stats.decode_steps
    await local.comes_to_rest()

    assert local.engine.stats.decode_steps - steps < 20
    assert not local.engine._core.is_busy


async def test_later_turns_find_what_earlier_ones_computed(local: Local) -> None:
    """Within a trajectory, and among the members of a group that come at once."""
    first = prompt_of(77, 120)
    answer = await local.ask(first, max_tokens=40)
    before = local.engine.stats.reused_tokens
    second = (*first, *answer.token_ids, *prompt_of(78, 15))
    await local.ask(second)
    across_turns = local.engine.stats.reused_tokens - before
    group = prompt_of(79, 120)
    await asyncio.gather(*[local.ask(group, session=str(i), seed=i) for i in range(8)])
    in_a_group = local.engine.stats.reused_tokens - before - across_turns

    assert across_turns == 128
    assert in_a_group == 7 * 96


async def test_more_prompts_than_a_step_takes(local: Local) -> None:
    """vLLM would cut one of them in two, and on CPU fail at its seed."""
    prompts = [prompt_of(seed, 450) for seed in range(12)]
    answers = await asyncio.gather(
        *[local.ask(prompt, session=str(i), seed=i) for i, prompt in enumerate(prompts)]
    )

    assert max(map(local.error, prompts, answers)) < EXACT


def test_event_loops_may_come_and_go(local: Local) -> None:
    async def turn(seed: int) -> Generation:
        return await local.ask(PROMPT, seed=seed)

    answers = [asyncio.run(turn(seed)) for seed in (1, 2, 1)]

    assert answers[0].token_ids == answers[2].token_ids != answers[1].token_ids
