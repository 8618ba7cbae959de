"""The list of envs is whole, whatever one of them does."""

from collections.abc import Iterator
from typing import NoReturn

import pytest
from gymnasium.envs.registration import registry

from agentgym.cli import main
from agentgym.envs import ToolEnv, register


class Broken(ToolEnv):
    """Reads a data set that is not there."""

    def __init__(self) -> None:
        raise ValueError("no such data")


class Quits(ToolEnv):
    """Checks a key that is not there."""

    def __init__(self) -> None:
        raise SystemExit("no key")


class Hidden(ToolEnv):
    """Looks its tools up in something that is not there."""

    @property
    def tools(self) -> NoReturn:  # type: ignore[override]
        raise KeyError("index")


@pytest.fixture(params=[Broken, Quits, Hidden])
def broken(request: pytest.FixtureRequest) -> Iterator[type[ToolEnv]]:
    kind: type[ToolEnv] = request.param
    register(f"{kind.__name__}-v0", kind)
    yield kind
    del registry[f"agentgym/{kind.__name__}-v0"]


def test_an_env_that_cannot_be_built_is_listed_with_its_error(
    broken: type[ToolEnv], capsys: pytest.CaptureFixture[str]
) -> None:
    """Somebody looking for another env need not care that this one lacks its data."""
    code = main(["envs"])

    out = " ".join(capsys.readouterr().out.split())
    assert code == 0
    assert f"{broken.__name__.lower()} v0" in out
    assert "cannot be built" in out
    assert "calculator v" in out
