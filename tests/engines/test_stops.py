"""A turn ends with the token that completes a stop string, wherever the string lies in tokens."""

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym.engines.base import Generation, Sampling
from agentgym.engines.scripted import ScriptedEngine
from agentgym.engines.stops import StopStrings, length_until_stop
from agentgym.errors import ConfigError
from agentgym.testing import byte_tokenizer

TOKENIZER = byte_tokenizer()


def decode_bytes(ids: Sequence[int]) -> str:
    return TOKENIZER.decode(list(ids), skip_special_tokens=False)


def naive(ids: Sequence[int], stop: Sequence[str], vocabulary: Sequence[str]) -> int | None:
    """Decodes everything after every token."""
    texts = ("".join(vocabulary[i] for i in ids[:n]) for n in range(len(ids) + 1))
    return next((n for n, text in enumerate(texts) if any(s in text for s in stop)), None)


@given(
    st.lists(st.sampled_from(["", "a", "b", "ab", "ba", "aab", " a", "\n"]), max_size=60),
    st.lists(st.text("ab \n", min_size=1, max_size=12), min_size=1, max_size=3),
)
def test_found_where_the_whole_text_says_it_is(tokens: list[str], stop: list[str]) -> None:
    """Within a token, across many, after tokens without text: never late, never early."""
    watched = StopStrings(stop, lambda ids: "".join(tokens[i] for i in ids))

    found = length_until_stop(range(len(tokens)), watched)

    assert found == naive(range(len(tokens)), stop, tokens)


@given(st.text("aé中😀 ", max_size=30), st.text("aé中😀 ", min_size=1, max_size=5))
def test_characters_may_span_tokens(text: str, stop: str) -> None:
    """With one token per byte, the last byte of the stop string completes it."""
    ids = TOKENIZER.encode(text, add_special_tokens=False)

    found = length_until_stop(ids, StopStrings([stop], decode_bytes))

    at = text.encode().find(stop.encode())
    assert found == (None if at < 0 else at + len(stop.encode()))


def test_special_tokens_have_text() -> None:
    ids = TOKENIZER.encode("a<tool_call>b", add_special_tokens=False)

    assert length_until_stop(ids, StopStrings(["<tool_call>"], decode_bytes)) == 2


def test_the_cost_of_a_token_does_not_grow_with_the_turn() -> None:
    longest = 0

    def decode(ids: Sequence[int]) -> str:
        nonlocal longest
        longest = max(longest, len(ids))
        return "x" * len(ids)

    assert length_until_stop(range(5000), StopStrings(["Observation:"], decode)) is None
    assert longest == len("Observation:") + 4


PIECES = ["<answer>", "7", "</ans", "wer>\n", "more", "<end>"]


def play(stop: tuple[str, ...], ids: Sequence[int], max_tokens: int = 100) -> Generation:
    engine = ScriptedEngine([ids], decode=lambda seen: "".join(PIECES[i] for i in seen))
    settings = Sampling(max_tokens=max_tokens, seed=1, stop=stop, stop_token_ids=frozenset({5}))
    return asyncio.run(engine.generate((1,), settings, session="s"))


@pytest.mark.parametrize(
    ("stop", "max_tokens", "kept", "reason"),
    [
        (("</answer>",), 100, 4, "stop_string"),
        (("</answer>",), 4, 4, "stop_string"),
        (("</answer>",), 3, 3, "length"),
        (("nothing", "7"), 100, 2, "stop_string"),
        (("<end>",), 100, 6, "stop"),
        (("more",), 100, 5, "stop_string"),
        ((), 100, 6, "stop"),
    ],
)
def test_a_script_is_cut_like_a_sampled_turn(
    stop: tuple[str, ...], max_tokens: int, kept: int, reason: str
) -> None:
    """A stop token is no text, and the budget never hides a stop string that just fits."""
    answer = play(stop, range(6), max_tokens)

    assert len(answer.token_ids) == len(answer.logprobs) == kept
    assert answer.finish_reason == reason


async def test_an_engine_that_cannot_decode_refuses_stop_strings() -> None:
    """Ignoring them would let the policy write the tool's results itself."""
    engine = ScriptedEngine([[1]])

    with pytest.raises(ConfigError, match=r"stop=\['x'\].*without `decode`"):
        await engine.generate((1,), Sampling(max_tokens=9, seed=1, stop=("x",)), session="s")
