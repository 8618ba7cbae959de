"""Constrained turns: what they may hold, where they end, and which probabilities they report."""

import asyncio
import json
import re
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import jsonschema
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedModel

from agentgym.constraint import Constraint, ConstraintError, constraint_of
from agentgym.engines.base import Generation, Sampling
from agentgym.engines.transformers import GenerateEngine, TransformersEngine
from agentgym.engines.transformers.copying import CopyEngine
from agentgym.errors import ConfigError
from agentgym.testing import byte_tokenizer

TOKENIZER = byte_tokenizer()
EOS = TOKENIZER.convert_tokens_to_ids("<|im_end|>")
END = TOKENIZER.convert_tokens_to_ids("<think>")
"""A stop token that is not the tokenizer's own."""
STOPS = frozenset({EOS, END, 9999})
PROMPT = tuple(TOKENIZER.encode("Say something."))
DIGITS = Constraint(regex="[0-9]{4}")
Engine = TransformersEngine | GenerateEngine | CopyEngine
FEW = settings(max_examples=12, deadline=None)


@pytest.fixture(scope="module")
def policy(make_model: Callable[..., PreTrainedModel]) -> PreTrainedModel:
    """Its logits are wider than the tokenizer."""
    return make_model("qwen3", vocab_size=len(TOKENIZER) + 10)


@pytest.fixture(scope="module")
def engines(policy: PreTrainedModel) -> Iterator[list[Engine]]:
    kinds = TransformersEngine, GenerateEngine, CopyEngine
    engines: list[Engine] = [kind(policy, tokenizer=TOKENIZER) for kind in kinds]
    yield engines
    for engine in engines:
        asyncio.run(engine.aclose())


def asked(
    engine: Engine, constraint: Constraint | None, *, session: str = "s", **how: Any
) -> Coroutine[Any, Any, Generation]:
    defaults = {"max_tokens": 40, "seed": 1, "stop_token_ids": STOPS, "constraint": constraint}
    return engine.generate(PROMPT, Sampling(**(defaults | how)), session=session)


def from_all(engines: list[Engine], constraint: Constraint, **how: Any) -> list[Generation]:
    """Turns with two seeds of both ways to sample, all at once."""

    async def ask() -> list[Generation]:
        calls = [
            asked(engine, constraint, session=str(seed), **{"seed": seed, **how})
            for engine in engines[:2]
            for seed in range(2)
        ]
        return await asyncio.gather(*calls)

    return asyncio.run(ask())


def text_of(answer: Generation) -> str:
    return str(TOKENIZER.decode(answer.token_ids[:-1]))


letters = st.sampled_from(["a", "b", "é", "1", " ", r"\.", "[a-f]", "[^a]", "[0-9]"])
regexes = st.recursive(
    letters,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda two: f"({two[0]}|{two[1]})"),
        st.tuples(inner, st.sampled_from(["?", "{2}", "{1,3}", "*"])).map(
            lambda two: f"({two[0]}){two[1]}"
        ),
    ),
    max_leaves=6,
)


@FEW
@given(regexes)
def test_a_turn_that_ends_matches_its_regex(engines: list[Engine], regex: str) -> None:
    """And one that does not end is as long as it may be."""
    for answer in from_all(engines, Constraint(regex=regex)):
        if answer.finish_reason == "stop":
            assert re.fullmatch(regex, text_of(answer), re.DOTALL)
            assert answer.token_ids[-1] in {EOS, END}
        assert answer.finish_reason == "stop" or len(answer.token_ids) == 40
        assert not STOPS & set(answer.token_ids[:-1])


values = st.one_of(
    st.just({"type": "boolean"}),
    st.just({"type": "null"}),
    st.just({"type": "string", "maxLength": 5}),
    st.just({"type": "string", "pattern": "^[ab]{2}$"}),
    st.integers(-50, 50).map(lambda low: {"type": "integer", "minimum": low, "maximum": low + 99}),
    st.lists(st.text('xyz"\\é', max_size=4), min_size=1, max_size=3).map(lambda v: {"enum": v}),
)
schemas = st.recursive(
    values,
    lambda inner: st.one_of(
        inner.map(lambda item: {"type": "array", "items": item, "maxItems": 2}),
        st.dictionaries(st.sampled_from("pqr"), inner, max_size=2).map(
            lambda named: {
                "type": "object",
                "properties": named,
                "required": sorted(named),
                "additionalProperties": False,
            }
        ),
    ),
    max_leaves=4,
)


@FEW
@given(schemas)
def test_a_turn_that_ends_is_json_of_its_schema(
    engines: list[Engine], schema: dict[str, Any]
) -> None:
    answers = from_all(engines, Constraint(json_schema=schema), max_tokens=200)

    for answer in answers:
        assert answer.finish_reason == "stop" or len(answer.token_ids) == 200
        if answer.finish_reason == "stop":
            jsonschema.validate(json.loads(text_of(answer)), schema)


@FEW
@given(st.lists(st.text("abc", max_size=5), min_size=1, max_size=5), st.sampled_from([1.0, 0.4]))
def test_logprobs_are_of_the_tokens_that_can_still_match(
    engines: list[Engine], policy: PreTrainedModel, words: list[str], temperature: float
) -> None:
    """A few words: which letters may come next, and whether it may end, is plain to see."""
    constraint = Constraint(regex="|".join(words))
    for answer in from_all(engines, constraint, temperature=temperature):
        with torch.no_grad():
            ids = torch.tensor([[*PROMPT, *answer.token_ids]])
            logits = policy(input_ids=ids).logits[0, len(PROMPT) - 1 : -1] / temperature
        for place, (token, logprob) in enumerate(
            zip(answer.token_ids, answer.logprobs, strict=True)
        ):
            so_far = TOKENIZER.decode(answer.token_ids[:place])
            fitting = [word[place:] for word in words if word.startswith(so_far)]
            allowed = {TOKENIZER.encode(rest[0])[0] for rest in fitting if rest}
            allowed |= {EOS, END} if "" in fitting else set()
            mass = logits[place, sorted(allowed)].logsumexp(0)

            assert token in allowed
            assert logprob == pytest.approx(float(logits[place, token] - mass), abs=1e-4)


async def test_a_seed_gives_the_same_turn_alone_and_among_others(engines: list[Engine]) -> None:
    """And a free turn does not notice that its neighbours are constrained."""
    for engine in engines:
        alone = await asked(engine, DIGITS)
        free = await asked(engine, None, max_tokens=20)
        others = [asked(engine, Constraint(regex=f"x{{{n}}}"), session=f"o{n}") for n in (1, 9)]
        crowded = await asyncio.gather(
            asked(engine, DIGITS, session="again"),
            asked(engine, None, session="free", max_tokens=20),
            *others,
        )

        assert [answer.token_ids for answer in crowded[:2]] == [alone.token_ids, free.token_ids]
        assert re.fullmatch("[0-9]{4}", text_of(alone))
        assert [text_of(answer) for answer in crowded[2:]] == ["x", "x" * 9]


async def test_a_greedy_turn_is_constrained(engines: list[Engine]) -> None:
    one, *others = [await asked(engine, DIGITS, temperature=0.0, seed=5) for engine in engines]

    assert re.fullmatch("[0-9]{4}", text_of(one))
    assert {other.token_ids for other in others} == {one.token_ids}


async def test_a_turn_that_cannot_end_in_time_is_cut(engines: list[Engine]) -> None:
    for engine in engines:
        answer = await asked(engine, Constraint(regex="[ab]{50}"), max_tokens=10)

        assert answer.finish_reason == "length"
        assert re.fullmatch("[ab]{10}", TOKENIZER.decode(answer.token_ids))


async def test_the_tokenizers_own_end_is_none_where_the_turn_has_another(
    engines: list[Engine],
) -> None:
    """The grammar's library would take it for the end, and go on to nothing."""
    for engine in engines:
        turns = [
            asked(engine, Constraint(regex="a*"), seed=seed, stop_token_ids=frozenset({END}))
            for seed in range(20)
        ]
        answers = await asyncio.gather(*turns)

        assert {token for answer in answers for token in answer.token_ids} == {
            END,
            TOKENIZER.encode("a")[0],
        }


async def test_a_turn_that_starts_again_starts_its_grammar_again(engines: list[Engine]) -> None:
    """The weights are the same, and so is the turn."""
    for engine in engines[:2]:
        constraint = Constraint(regex="(abc){12}")
        alone = await asked(engine, constraint)
        steps = engine.stats.decode_steps
        turn = asyncio.create_task(asked(engine, constraint))
        async with asyncio.timeout(20):
            while engine.stats.decode_steps < steps + 4:  # noqa: ASYNC110 - a thread makes it true
                await asyncio.sleep(0)
        version = await engine.update_weights()
        again = await turn

        assert text_of(again) == "abc" * 12
        assert (again.token_ids, again.policy_version) == (alone.token_ids, version)


@pytest.mark.parametrize(
    ("constraint", "reason"),
    [
        (Constraint(regex="(?=a)b"), "look-around"),
        (Constraint(json_schema={"type": "array", "uniqueItems": True}), "uniqueItems"),
        (Constraint(json_schema={"$ref": "https://example.com/x"}), "(?i)ref|resource"),
        (Constraint(json_schema={"type": "string", "minLength": 3, "maxLength": 2}), "(?i)unsat"),
    ],
)
async def test_what_cannot_be_enforced_fails_its_turn_alone(
    engines: list[Engine], constraint: Constraint, reason: str
) -> None:
    for engine in engines:
        fine = asyncio.create_task(asked(engine, DIGITS, session="fine"))
        with pytest.raises(ConstraintError, match=reason) as caught:
            await asked(engine, constraint)

        assert "\n" not in str(caught.value)
        assert re.fullmatch("[0-9]{4}", text_of(await fine))


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"regex": "(a"}, r"regex='\(a'"),
        ({"regex": "a{99999999999}"}, "regex="),
        ({"json_schema": {"type": "text"}}, "json_schema: 'text'"),
        ({"regex": "a", "json_schema": {}}, "give one of them"),
        ({}, "give one of them"),
        ({"regexp": "a"}, "regexp"),
        ({"regex": 3}, "regex"),
        ("a+", "not a str"),
    ],
)
def test_what_is_no_constraint_is_said(given: object, reason: str) -> None:
    """Before an engine sees it."""
    with pytest.raises(ConstraintError, match=reason):
        constraint_of(given)


async def test_what_an_engine_needs_for_it_is_said(
    engines: list[Engine], policy: PreTrainedModel
) -> None:
    """A tokenizer, with an end; and something to end the turn with."""
    nameless = byte_tokenizer()
    nameless.eos_token = None
    needs = {None: "without `tokenizer`", nameless: "no eos_token"}
    for tokenizer, message in needs.items():
        engine = TransformersEngine(policy, tokenizer=tokenizer)
        with pytest.raises(ConfigError, match=message):
            await asked(engine, DIGITS)
        await engine.aclose()
    with pytest.raises(ConfigError, match="needs a stop token"):
        await asked(engines[0], DIGITS, stop_token_ids=frozenset({9999}))
