"""The slot engine computes a prompt token once, whoever needs it, and nothing gets mixed up."""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import AttentionInterface

from agentgym.engines.base import Generation, Sampling
from agentgym.engines.transformers import TransformersEngine
from agentgym.engines.transformers.cache import SlotCache
from agentgym.engines.transformers.slots import prefill_batch

MakeBench = Callable[..., Any]
PROMPT = list(range(3, 33))


def prompt_of(seed: int, length: int = 30) -> list[int]:
    return random.Random(seed).choices(range(64), k=length)


async def play(bench: Any, session: str, *, first: list[int], turns: int = 3) -> list[Any]:
    """A trajectory: sampled turns with 5 tokens from outside after each."""
    ids, record = list(first), []
    for turn in range(turns):
        answer = await bench.ask(ids, session=session, seed=turn + len(session), max_tokens=7)
        record.append((list(ids), answer))
        ids += [*answer.token_ids, *prompt_of(turn, 5)]
    return record


@pytest.mark.parametrize("kind", ["qwen3", "llama"])
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
async def test_logprobs_stay_exact_over_many_turns(
    kind: str, attention: str, make_bench: MakeBench, make_model: Callable[..., Any]
) -> None:
    """Turns of 12 trajectories in 3 groups, with reused, copied and padded rows."""
    model = make_model(kind, attn_implementation=attention)
    bench = make_bench(model=model)
    records = await asyncio.gather(
        *[play(bench, f"{g}{'x' * k}", first=prompt_of(g)) for g in range(3) for k in range(4)]
    )

    errors = [bench.logprob_error(ids, answer) for record in records for ids, answer in record]
    assert len(errors) == 36
    assert max(errors) < 1e-5


async def test_a_turn_prefills_only_what_is_new(make_bench: MakeBench) -> None:
    """The last sampled token and what came after it; all before is stored already."""
    bench = make_bench()
    await play(bench, "s", first=PROMPT, turns=3)
    stats = bench.engine.stats

    assert stats.prefilled_tokens == 30 + 2 * (1 + 5)
    assert stats.reused_tokens == (30 + 7 - 1) + (30 + 7 + 5 + 7 - 1)
    assert stats.sampled_tokens == 21


async def test_a_group_computes_its_prompt_once(make_bench: MakeBench) -> None:
    bench = make_bench()
    answers = await asyncio.gather(
        *[bench.ask(PROMPT, session=str(i), seed=i, max_tokens=4) for i in range(8)]
    )
    stats = bench.engine.stats

    assert stats.prefill_calls == 1
    assert stats.prefilled_tokens == 30 + 7
    assert stats.reused_tokens == 7 * 29
    assert max(bench.logprob_error(PROMPT, answer) for answer in answers) < 1e-5


async def test_prompts_share_what_they_begin_with(make_bench: MakeBench) -> None:
    """Different tasks of one env have its system prompt in common."""
    bench = make_bench()
    prompts = [[*PROMPT, *prompt_of(seed, 6)] for seed in range(4)]
    await asyncio.gather(*[bench.ask(prompt, session=str(i)) for i, prompt in enumerate(prompts)])

    assert bench.engine.stats.reused_tokens == 3 * 30
    assert bench.engine.stats.prefill_calls == 2


async def test_a_finished_trajectory_still_lends_its_prefix(make_bench: MakeBench) -> None:
    bench = make_bench()
    first = await bench.ask(PROMPT, session="a")
    bench.engine.release("a")
    second = await bench.ask(PROMPT, session="b")

    assert bench.engine.stats.reused_tokens == 29
    assert second.token_ids == first.token_ids


async def test_a_prefix_is_continued_where_it_lies(make_bench: MakeBench) -> None:
    """Both rows are free; taking the older one would copy one prefix over the other."""
    bench = make_bench(max_rows=2)
    for seed in (1, 2):
        await bench.ask(prompt_of(seed), session=str(seed))
    bench.engine.release("1")
    bench.engine.release("2")
    for seed in (2, 1):
        await bench.ask(prompt_of(seed), session=f"again {seed}")

    assert bench.engine.stats.reused_tokens == 2 * 29


async def test_an_attention_without_masks_is_replaced_while_sampling(
    make_bench: MakeBench,
) -> None:
    """Training may use one, such as flash attention or a packed one of its own."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("called by the engine")

    AttentionInterface.register("test_refuses", refuse)
    bench = make_bench()
    bench.model.config._attn_implementation = "test_refuses"
    answer = await bench.ask(PROMPT)

    assert bench.model.config._attn_implementation == "test_refuses"
    bench.model.config._attn_implementation = "sdpa"
    assert bench.logprob_error(PROMPT, answer) < 1e-5


async def test_a_rewritten_history_reuses_what_still_matches(make_bench: MakeBench) -> None:
    """A fork: same session, same first 20 tokens, then other ones."""
    bench = make_bench()
    await bench.ask(PROMPT)
    forked = [*PROMPT[:20], *prompt_of(9, 15)]
    answer = await bench.ask(forked)

    assert bench.engine.stats.reused_tokens == 20
    assert bench.logprob_error(forked, answer) < 1e-5


async def test_an_evicted_trajectory_gives_the_same_tokens(make_bench: MakeBench) -> None:
    """With two rows for six trajectories nearly every turn starts anew."""
    roomy, tight = make_bench(max_rows=8), make_bench(max_rows=2)
    expected = [await play(roomy, "s" * k, first=prompt_of(k)) for k in range(1, 7)]
    evicted = await asyncio.gather(*[play(tight, "s" * k, first=prompt_of(k)) for k in range(1, 7)])

    for record, other in zip(expected, evicted, strict=True):
        assert [a.token_ids for _, a in record] == [a.token_ids for _, a in other]
    assert tight.engine.stats.reused_tokens < roomy.engine.stats.reused_tokens


async def test_the_row_that_has_waited_longest_is_evicted(make_bench: MakeBench) -> None:
    bench = make_bench(max_rows=2)
    for session in ("old", "young", "new"):
        await bench.ask(prompt_of(len(session) + ord(session[0])), session=session)
    before = bench.engine.stats.reused_tokens
    await bench.ask(prompt_of(len("young") + ord("y")), session="young")

    assert bench.engine.stats.reused_tokens - before == 29


async def test_two_turns_of_one_session_at_once_do_not_mix(make_bench: MakeBench) -> None:
    bench = make_bench()
    prompts = [PROMPT, [*PROMPT[:10], *prompt_of(2)]]
    answers = await asyncio.gather(*[bench.ask(prompt, max_tokens=12) for prompt in prompts])

    assert max(map(bench.logprob_error, prompts, answers)) < 1e-5


async def test_long_prompts_go_in_pieces(
    make_bench: MakeBench, make_model: Callable[..., Any]
) -> None:
    """Several chunks, of several prompts of unlike length, while memory grows twice."""
    bench = make_bench(model=make_model("qwen3", max_position_embeddings=2048))
    await bench.ask(PROMPT, session="short")
    prompts = [prompt_of(seed, length) for seed, length in enumerate((1500, 1100, 600, 3))]
    answers = await asyncio.gather(
        *[bench.ask(prompt, session=str(i)) for i, prompt in enumerate(prompts)]
    )

    assert max(map(bench.logprob_error, prompts, answers)) < 2e-5
    assert bench.engine.stats.prefill_calls > 3


async def test_rows_left_idle_are_moved_out_of_the_batch(make_bench: MakeBench) -> None:
    """Twelve short turns end below four long ones; neither may lose what is stored of it."""
    bench = make_bench()
    rows = []

    def record(module: object, args: object, inputs: dict[str, Any]) -> None:
        rows.append(len(inputs["input_ids"]))

    bench.model.register_forward_pre_hook(record, with_kwargs=True)
    lengths = [3] * 12 + [40] * 4
    prompts = [prompt_of(seed, 10) for seed in range(16)]
    answers = await asyncio.gather(
        *[
            bench.ask(prompt, session=str(i), max_tokens=length)
            for i, (prompt, length) in enumerate(zip(prompts, lengths, strict=True))
        ]
    )
    batch_of_the_long_ones = rows[-1]
    before = bench.engine.stats.reused_tokens
    followed = [[*p, *a.token_ids, 1] for p, a in zip(prompts, answers, strict=True)]
    later = await asyncio.gather(
        *[bench.ask(prompt, session=str(i)) for i, prompt in enumerate(followed)]
    )

    assert 4 <= batch_of_the_long_ones <= 6
    assert max(map(bench.logprob_error, prompts, answers)) < 1e-5
    assert max(map(bench.logprob_error, followed, later)) < 1e-5
    assert bench.engine.stats.reused_tokens - before == sum(10 + n - 1 for n in lengths)


@dataclass(frozen=True)
class Play:
    """A request of the random schedule."""

    session: int
    prefix: int
    """Length of the common beginning."""
    own: int
    """Length of what follows."""
    max_tokens: int
    delay: int
    cancel_after: int | None


plays = st.builds(
    Play,
    session=st.integers(0, 3),
    prefix=st.integers(0, 30),
    own=st.integers(1, 12),
    max_tokens=st.integers(1, 12),
    delay=st.integers(0, 4),
    cancel_after=st.none() | st.integers(0, 6),
)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(plays, min_size=1, max_size=14), st.integers(1, 5))
def test_no_schedule_changes_what_a_request_samples(
    make_model: Callable[..., Any], schedule: list[Play], max_rows: int
) -> None:
    """Joins, cancels, shared prefixes, evictions and reused sessions in any order."""
    crowded = TransformersEngine(make_model("qwen3"), max_rows=max_rows)
    roomy = TransformersEngine(make_model("qwen3"))
    outcomes = asyncio.run(_run_schedule(crowded, schedule, together=True))
    alone = asyncio.run(_run_schedule(roomy, schedule, together=False))

    for play_, outcome, expected in zip(schedule, outcomes, alone, strict=True):
        if isinstance(outcome, asyncio.CancelledError):
            assert play_.cancel_after is not None
            continue
        assert isinstance(outcome, Generation)
        assert isinstance(expected, Generation)
        assert outcome.token_ids == expected.token_ids
        assert outcome.logprobs == pytest.approx(expected.logprobs, abs=1e-4)


async def _run_schedule(
    engine: TransformersEngine, schedule: list[Play], *, together: bool
) -> list[Generation | BaseException]:
    async def run(index: int, play_: Play) -> Generation:
        prompt = (*PROMPT[: play_.prefix], *prompt_of(index, play_.own))
        session = str(play_.session if together else index)
        sampling = Sampling(max_tokens=play_.max_tokens, seed=index)
        if together:
            await asyncio.sleep(0.001 * play_.delay)
        turn = asyncio.create_task(engine.generate(prompt, sampling, session=session))
        if together and play_.cancel_after is not None:
            await asyncio.sleep(0.001 * play_.cancel_after)
            turn.cancel()
        return await turn

    tasks = [asyncio.create_task(run(index, play_)) for index, play_ in enumerate(schedule)]
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    await engine.aclose()
    return outcomes


@given(st.lists(st.integers(1, 3000), min_size=1, max_size=40))
def test_a_prefill_call_is_bounded_and_at_least_half_useful(missing: list[int]) -> None:
    """Beyond a little padding, which costs less than another call."""
    missing = sorted(missing, reverse=True)
    count = prefill_batch(missing)
    width = min(512, missing[0])
    useful = sum(min(width, tokens) for tokens in missing[:count])

    assert 1 <= count <= len(missing)
    assert count * width <= 2048
    assert count == 1 or count * width <= 2 * useful + 256


def test_memory_that_grows_keeps_what_is_stored() -> None:
    cache = SlotCache()
    cache.reserve(2, 3)
    keys, values = torch.randn(2, 4, 3, 8), torch.randn(2, 4, 3, 6)
    cache.plan(slice(2), torch.arange(6), 3)
    cache.update(keys, values, 0)
    cache.reserve(5, 7)
    cache.plan(torch.tensor([1, 4]), torch.tensor([10, 31]), 4)
    new_keys, new_values = torch.randn(2, 4, 1, 8), torch.randn(2, 4, 1, 6)
    read_keys, read_values = cache.update(new_keys, new_values, 0)

    torch.testing.assert_close(read_keys[0], torch.cat([keys[1], new_keys[0]], dim=1))
    torch.testing.assert_close(read_values[0], torch.cat([values[1], new_values[0]], dim=1))
    torch.testing.assert_close(read_keys[1, :, 3:], new_keys[1])
    assert read_keys[1, :, :3].abs().max() == 0
