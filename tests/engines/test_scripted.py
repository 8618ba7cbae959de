"""Engines without a model obey the limits of one with a model and remember what was asked."""

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym.engines.base import Generation, Sampling
from agentgym.engines.scripted import CallableEngine, EngineCall, ScriptedEngine, ScriptedTurn
from agentgym.errors import ConfigError, EngineError

STOP = 0


def encode(text: str) -> list[int]:
    return [ord(letter) for letter in text]


def sampling(max_tokens: int = 100, stops: Sequence[int] = (STOP,)) -> Sampling:
    return Sampling(max_tokens=max_tokens, seed=1, stop_token_ids=frozenset(stops))


async def ask(
    engine: CallableEngine, prompt: Sequence[int] = (1,), session: str = "s"
) -> Generation:
    return await engine.generate(tuple(prompt), sampling(), session=session)


async def test_turns_come_in_order_in_every_session() -> None:
    engine = ScriptedEngine([[5, STOP], [6, 7, STOP]])

    answers = [await ask(engine, session=session) for session in ("a", "b", "a", "b")]

    assert [answer.token_ids for answer in answers] == [(5, 0), (5, 0), (6, 7, 0), (6, 7, 0)]


async def test_an_exhausted_script_names_session_and_length() -> None:
    engine = ScriptedEngine([[5, STOP]])
    await ask(engine, session="calculator/3")

    with pytest.raises(EngineError, match=r"'calculator/3' has 1 turns"):
        await ask(engine, session="calculator/3")


async def test_a_released_session_starts_over() -> None:
    engine = ScriptedEngine([[5, STOP]])
    first = await ask(engine)
    engine.release("s")
    engine.release("never seen")

    assert await ask(engine) == first


async def test_the_first_script_whose_pattern_matches_the_session_is_played() -> None:
    engine = ScriptedEngine({"task-1*": [[1]], "*-2": [[2]]})

    assert (await ask(engine, session="task-17")).token_ids == (1,)
    assert (await ask(engine, session="task-2")).token_ids == (2,)
    with pytest.raises(EngineError, match=r"no script for session 'other'; there are task-1\*"):
        await ask(engine, session="other")


async def test_text_is_encoded_and_ends_with_the_stop_token_of_the_request() -> None:
    answer = await ask(ScriptedEngine(["ab"], encode=encode))

    assert answer.token_ids == (97, 98, STOP)
    assert answer.finish_reason == "stop"


async def test_text_cut_short_has_no_stop_token() -> None:
    turn = ScriptedTurn(text="ab", finish_reason="length")

    answer = await ask(ScriptedEngine([turn], encode=encode))

    assert answer.token_ids == (97, 98)
    assert answer.finish_reason == "length"


async def test_text_needs_to_know_which_stop_token_ends_it() -> None:
    """With two candidates a guess would be a token the model never uses there."""
    engine = ScriptedEngine(["a", "b"], encode=encode)
    chosen = ScriptedEngine(["a", "b"], encode=encode, stop_token_id=8)
    two = sampling(stops=(7, 8))

    with pytest.raises(ConfigError, match=r"may end with any of \[7, 8\]"):
        await engine.generate((1,), two, session="s")
    assert (await chosen.generate((1,), two, session="s")).token_ids == (97, 8)


async def test_text_without_an_encoder_is_refused() -> None:
    with pytest.raises(ConfigError, match="'hello' is text"):
        await ask(ScriptedEngine(["hello"]))


@given(st.lists(st.integers(1, 9), min_size=1, max_size=9), st.integers(1, 12), st.integers(1, 12))
def test_budget_and_context_cut_a_turn_like_a_sampled_one(
    ids: list[int], max_tokens: int, room: int
) -> None:
    """A script may be longer than the budget; the loop must see what an engine would return."""
    engine = ScriptedEngine([[*ids, STOP]], max_context=3 + room)

    answer = asyncio.run(engine.generate((1, 2, 3), sampling(max_tokens), session="s"))

    kept = min(len(ids) + 1, max_tokens, room)
    assert answer.token_ids == tuple([*ids, STOP][:kept])
    assert len(answer.logprobs) == kept
    assert answer.finish_reason == ("stop" if kept == len(ids) + 1 else "length")


async def test_a_prompt_that_fills_the_context_is_refused_with_the_figures() -> None:
    with pytest.raises(EngineError, match=r"3 tokens leaves no room in a context of 3"):
        await ask(ScriptedEngine([[1]], max_context=3), prompt=(1, 2, 3))


async def test_given_logprobs_are_kept_and_counted() -> None:
    good = ScriptedTurn(token_ids=[1, 2], logprobs=[-0.5, -1.0])
    bad = ScriptedTurn(token_ids=[1, 2], logprobs=[-0.5])
    engine = ScriptedEngine([good, bad])

    assert (await ask(engine)).logprobs == (-0.5, -1.0)
    with pytest.raises(EngineError, match="2 tokens and 1 logprobs"):
        await ask(engine)


async def test_every_call_is_recorded() -> None:
    engine = ScriptedEngine([[5], [6]]).recording()
    await ask(engine, prompt=(1, 2), session="a")
    await ask(engine, prompt=(3,), session="b")
    await ask(engine, prompt=(1, 2, 5), session="a")

    assert engine.prompts("a") == [(1, 2), (1, 2, 5)]
    assert [(call.session, call.turn) for call in engine.calls] == [("a", 0), ("b", 0), ("a", 1)]


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_policy_function_sees_prompt_session_and_turn(is_async: bool) -> None:
    """This is how an oracle plays through the same loop as a model."""

    def reverse(call: EngineCall) -> list[int]:
        return [*call.prompt_ids[::-1], call.turn]

    async def reverse_later(call: EngineCall) -> list[int]:
        await asyncio.sleep(0)
        return reverse(call)

    engine = CallableEngine(reverse_later if is_async else reverse)
    await ask(engine, prompt=(1, 2))

    assert (await ask(engine, prompt=(3, 4))).token_ids == (4, 3, 1)


async def test_a_policy_that_raises_fails_its_own_call() -> None:
    def broken(call: EngineCall) -> list[int]:
        raise ValueError("no idea")

    with pytest.raises(EngineError, match=r"policy of session 's': ValueError: no idea"):
        await ask(CallableEngine(broken))


async def test_updates_are_counted_and_stamped() -> None:
    engine = ScriptedEngine([[1], [1]])
    before = await ask(engine)

    assert await engine.update_weights() == 1
    assert (before.policy_version, (await ask(engine)).policy_version) == (0, 1)


async def test_a_closed_engine_answers_nothing() -> None:
    engine = ScriptedEngine([[1]])
    await engine.aclose()
    await engine.aclose()

    with pytest.raises(EngineError, match="closed"):
        await ask(engine)


async def test_a_script_for_another_vocabulary_fails_its_call() -> None:
    """The ids would decode to nothing, and train rows of the embedding that do not exist."""
    with pytest.raises(EngineError, match="the turn holds token id 9; the model knows 0 to 8"):
        await ask(ScriptedEngine([[1, 9]], vocabulary=9))


def test_calls_are_kept_only_for_who_asks() -> None:
    """A long run with an oracle would keep every prompt for ever."""
    with pytest.raises(ConfigError, match="recording"):
        _ = ScriptedEngine([[1]]).calls
