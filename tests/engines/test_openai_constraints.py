"""Constraints at an endpoint: asked for in its own words, and never left out without a word."""

from typing import Any

import pytest
from aiohttp import web
from openai_kit import END, Server, ask, engine_for, refusing, said, server

from agentgym.constraint import Constraint, ConstraintError
from agentgym.errors import EngineError

__all__ = ["server"]


DIGITS = Constraint(regex="[0-9]{2}")
NUMBER = Constraint(json_schema={"type": "object", "required": ["n"]})


@pytest.mark.parametrize(
    ("constraint", "text", "field"),
    [
        (DIGITS, "42", {"structured_outputs": {"regex": "[0-9]{2}"}}),
        (
            NUMBER,
            '{"n": 1}',
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "turn", "schema": NUMBER.json_schema, "strict": True},
                }
            },
        ),
    ],
)
async def test_a_constraint_is_asked_for(
    server: Server, constraint: Constraint, text: str, field: dict[str, Any]
) -> None:
    server.answer = lambda number: said(text)
    answer = await ask(engine_for(server), constraint=constraint)

    assert "".join(map(chr, answer.token_ids)) == text + chr(END)
    assert server.bodies[0].items() >= field.items()


@pytest.mark.parametrize(
    ("constraint", "text"),
    [(DIGITS, "4"), (DIGITS, "423"), (NUMBER, "n"), (NUMBER, "{}"), (NUMBER, "[" * 99999)],
)
async def test_a_constraint_is_never_ignored(
    server: Server, constraint: Constraint, text: str
) -> None:
    """Many servers leave out what they do not know; a turn that is cut is no proof of it."""
    server.answer = lambda number: said(text, "length" if number else "stop")

    with pytest.raises(EngineError, match="does not enforce constraints") as caught:
        await ask(engine_for(server), constraint=constraint)
    assert len(str(caught.value)) < 600
    assert await ask(engine_for(server), constraint=constraint)


@pytest.mark.parametrize(
    ("constraint", "name"), [(DIGITS, "structured_outputs"), (NUMBER, "response_format")]
)
async def test_an_endpoint_that_takes_no_constraint_fails_the_trajectory(
    server: Server, constraint: Constraint, name: str
) -> None:
    """The constraint is the env's."""
    server.answer = refusing(name, f"Unrecognized request argument supplied: {name}", server)

    with pytest.raises(ConstraintError, match=f"does not take {name}="):
        await ask(engine_for(server), constraint=constraint)


@pytest.mark.parametrize("constraint", [DIGITS, NUMBER])
async def test_what_a_server_cannot_make_a_grammar_of_is_told_from_other_refusals(
    server: Server, constraint: Constraint
) -> None:
    """vLLM names no setting; and a prompt that is too long is no fault of the constraint."""
    texts = [
        "Failed to transform regex into a grammar: Lookahead is not supported yet.",
        "The provided JSON schema contains features not supported by xgrammar.",
        "This model's maximum context length is 10 tokens, your prompt contains 11 input tokens",
    ]
    for text in texts:
        error = {"error": {"message": text, "param": None}}
        server.answer = lambda number, error=error: web.json_response(error, status=400)
        with pytest.raises(EngineError if "length" in text else ConstraintError) as caught:
            await ask(engine_for(server), constraint=constraint)
        assert text in str(caught.value)
        assert isinstance(caught.value, ConstraintError) == ("length" not in text)
