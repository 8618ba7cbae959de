"""Foreign exceptions become ours at one place; ours and cancellation pass."""

import asyncio

import pytest

from agentgym.errors import ConfigError, EnvError, NotRegisteredError, OutageError, boundary


def test_foreign_errors_name_the_action():
    """The record of a failed trajectory says what broke, and keeps the cause."""
    with (
        pytest.raises(EnvError, match="step: ZeroDivisionError") as caught,
        boundary(EnvError, "step"),
    ):
        1 / 0  # noqa: B018

    assert isinstance(caught.value.__cause__, ZeroDivisionError)


@pytest.mark.parametrize(
    "error", [ConfigError("x"), OutageError("x"), asyncio.CancelledError(), KeyboardInterrupt()]
)
def test_what_is_not_foreign_passes_unchanged(error: BaseException):
    """A mistake of the caller is not the env's, and Ctrl-C is no failure."""
    with pytest.raises(type(error)) as caught, boundary(EnvError, "step"):
        raise error

    assert caught.value is error


def test_an_unknown_name_suggests_a_near_one():
    """Typos are the commonest mistake."""
    error = NotRegisteredError("env", "calculater", ["calculator", "maze"])

    assert "Did you mean 'calculator'?" in str(error)
