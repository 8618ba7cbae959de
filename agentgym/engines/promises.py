"""Constraints at a server that takes text: how they are asked for, and whether they were kept.

A server may leave out what it does not know without a word, so an answer is held against what was
asked for.
"""

import json
import re
from typing import Any

import regex
from jsonschema import Draft202012Validator

from agentgym.constraint import Constraint
from agentgym.errors import EngineError

_CHECK_S = 1.0
_SHOWN = 200
_OF_A_CONSTRAINT = re.compile(r"(?i)grammar|regex|schema|structured|guided|guidance")


def constraint_fields(constraint: Constraint) -> dict[str, Any]:
    """Of a request: OpenAI's own for a schema, vLLM's extension for a regex."""
    if constraint.regex is not None:
        return {"structured_outputs": {"regex": constraint.regex}}
    schema = {"name": "turn", "schema": constraint.json_schema, "strict": True}
    return {"response_format": {"type": "json_schema", "json_schema": schema}}


def is_about_a_constraint(complaint: str) -> bool:
    """Whether a server refuses a turn for its constraint, and not for its prompt or its limits."""
    return _OF_A_CONSTRAINT.search(complaint) is not None


def refuse_broken_promise(constraint: Constraint, text: str) -> None:
    """Hold a whole answer against its constraint.

    Raises:
        EngineError: it does not match.
    """
    reason = _mismatch(constraint, text)
    if reason is not None:
        raise EngineError(
            f"the endpoint does not enforce constraints: {reason}, and it answered "
            f"{text[:_SHOWN]!r}; ask a server that does, or leave the turn free"
        )


def _mismatch(constraint: Constraint, text: str) -> str | None:
    if constraint.regex is not None:
        try:
            matches = regex.fullmatch(constraint.regex, text, timeout=_CHECK_S)
        except (regex.error, TimeoutError) as error:
            return f"regex={constraint.regex!r} cannot be checked ({error or 'too slow'})"
        return None if matches else f"regex={constraint.regex!r} was asked for"
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return "JSON was asked for"
    wrong = next(Draft202012Validator(constraint.json_schema).iter_errors(value), None)
    return None if wrong is None else f"JSON of a schema was asked for ({wrong.message[:_SHOWN]})"
