"""What a turn of the policy must look like, enforced while it is sampled."""

from typing import Any, Self

from pydantic import BaseModel, ConfigDict, model_validator


class Constraint(BaseModel):
    """A grammar for one turn: of all tokens, the sampler draws from those that can still match.

    The tokens of such a turn come from another distribution than the policy's own, so they are kept
    and shown, but not trained.

    Raises:
        ValueError: not exactly one of the two is given.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    regex: str | None = None
    """The whole turn matches it."""
    json_schema: dict[str, Any] | None = None
    """The whole turn is one JSON value that is valid under it."""

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if (self.regex is None) == (self.json_schema is None):
            raise ValueError("a constraint is either a regex or a json_schema: give one of them")
        return self
