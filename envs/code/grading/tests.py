"""What a program is tried with: records that survive JSON, since they are data of a task."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from agentgym.errors import ConfigError

OutputMode = Literal["exact", "tokens", "float"]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class StdioTest(_Record):
    """The program is run with an input; what it prints is compared."""

    kind: Literal["stdio"] = "stdio"
    stdin: str = ""
    """Its lines end in a line feed, whatever they end in here."""
    expected: str
    compare: OutputMode = "exact"
    """See `compare.same_output`."""
    tol: float = Field(1e-6, ge=0, lt=1)
    """Relative, below 1 absolute; for `compare="float"`."""


class CallTest(_Record):
    """A function is called; what it returns is compared as plain JSON."""

    kind: Literal["call"] = "call"
    function: str
    """Name; `Solution.method` calls a method of a new object. Either form finds what is defined."""
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = Field(default_factory=dict)
    expected: Any
    alternatives: tuple[Any, ...] = ()
    """Other values that are right."""
    tol: float | None = Field(None, ge=0, lt=1)
    """For floats: relative, below 1 absolute; exact if left out."""


class AssertTest(_Record):
    """Test code: asserts, `check(candidate)`, functions of pytest or a `unittest.TestCase`."""

    kind: Literal["assert"] = "assert"
    source: str
    setup: str = ""
    """Statements before it: imports, helpers, objects that the tests use."""
    functions: tuple[str, ...] = ()
    """Names that the program defines; without them, every name that nothing else defines."""


Test = Annotated[StdioTest | CallTest | AssertTest, Field(discriminator="kind")]
_TESTS: TypeAdapter[tuple[StdioTest | CallTest | AssertTest, ...]] = TypeAdapter(tuple[Test, ...])


def read_tests(rows: Any) -> tuple[StdioTest | CallTest | AssertTest, ...]:
    """Tests from their JSON form.

    Raises:
        ConfigError: they are none; says which field.
    """
    try:
        return _TESTS.validate_python(rows)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "tests"
        raise ConfigError(f"test {where}: {first['msg']}") from error
