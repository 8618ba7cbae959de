"""What a turn of the policy must look like, enforced while it is sampled."""

import re
from typing import Any, Self

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from agentgym.errors import EnvError

_MAX_SHOWN = 120


class Constraint(BaseModel):
    """A grammar for one turn: of all tokens, the sampler draws from those that can still match.

    The tokens of such a turn come from another distribution than the policy's own, so they are kept
    and shown, but not trained.

    Raises:
        ValueError: not exactly one of the two is given.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    regex: str | None = None
    """The whole turn matches it; no look-around and no back-references. `\\w` and `\\d` mean all
    scripts, in more or less recent versions of Unicode: rather write `[0-9]`."""
    json_schema: dict[str, Any] | None = None
    """The whole turn is one JSON value that is valid under it."""

    def __str__(self) -> str:
        """What it wants, in a line for an error."""
        wanted = {"regex": self.regex, "json_schema": self.json_schema}
        (shown,) = (f"{name}={value!r}" for name, value in wanted.items() if value is not None)
        return shown if len(shown) <= _MAX_SHOWN else f"{shown[: _MAX_SHOWN - 3]}..."

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if (self.regex is None) == (self.json_schema is None):
            raise ValueError("a constraint is either a regex or a json_schema: give one of them")
        return self


class ConstraintError(EnvError):
    """The constraint of a turn is none, or none that the engine can enforce."""


def constraint_of(value: object) -> Constraint | None:
    """A constraint as an env or a scheduler gives it, found to be one.

    Args:
        value: a `Constraint`, a dict of its fields, or `None` for a free turn.

    Raises:
        ConstraintError: it is neither, or its regex or schema is wrong; says what.
    """
    if value is None:
        return None
    if not isinstance(value, Constraint | dict):
        raise ConstraintError(f"constraint: a Constraint or a dict, not a {type(value).__name__}")
    try:
        constraint = value if isinstance(value, Constraint) else Constraint.model_validate(value)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise ConstraintError(
            f"constraint {str(value)[:200]}: {place + ': ' if place else ''}{first['msg']}"
        ) from error
    _refuse_wrong(constraint)
    return constraint


def _refuse_wrong(constraint: Constraint) -> None:
    try:
        if constraint.regex is not None:
            re.compile(constraint.regex)
        else:
            Draft202012Validator.check_schema(constraint.json_schema)
    except (re.error, OverflowError, RecursionError) as error:
        raise ConstraintError(f"constraint regex={constraint.regex!r}: {error}") from error
    except SchemaError as error:
        raise ConstraintError(f"constraint json_schema: {error.message[:300]}") from error
