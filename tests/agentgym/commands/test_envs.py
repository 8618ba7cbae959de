"""The list of envs is whole, whatever one of them does."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import pytest
from gymnasium.envs.registration import registry

from agentgym.cli import main
from agentgym.envs import ToolEnv, register

BROKEN_ENVS = str(Path(__file__).parents[2] / "broken_envs.py")


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


class Waits(ToolEnv):
    """Asks a server that never answers."""

    def __init__(self) -> None:
        time.sleep(600)


class Stays(ToolEnv):
    """Says goodbye to a server that never answers."""

    def close(self) -> None:
        time.sleep(600)


@contextmanager
def registered(kind: type[ToolEnv]) -> Iterator[type[ToolEnv]]:
    register(f"{kind.__name__}-v0", kind)
    yield kind
    del registry[f"agentgym/{kind.__name__}-v0"]


@pytest.fixture(params=[Broken, Quits, Hidden])
def broken(request: pytest.FixtureRequest) -> Iterator[type[ToolEnv]]:
    with registered(request.param) as kind:
        yield kind


@pytest.fixture(params=[Waits, Stays])
def hanging(request: pytest.FixtureRequest) -> Iterator[type[ToolEnv]]:
    with registered(request.param) as kind:
        yield kind


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


def test_an_env_that_hangs_is_listed_as_late(
    hanging: type[ToolEnv], capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither its constructor nor its close keeps the others from being seen."""
    started = time.monotonic()

    code = main(["envs", "--timeout", "0.5"])

    out = " ".join(capsys.readouterr().out.split())
    assert code == 0
    assert f"{hanging.__name__.lower()} v0" in out
    assert "was not built and closed within 0.5 s" in out
    assert "word_guessing v" in out
    assert time.monotonic() - started < 60


def test_the_process_ends_though_envs_hang() -> None:
    """What they do in their threads is nobody's any more."""
    words = ["envs", "--plugins", BROKEN_ENVS, "--timeout", "1"]
    done = subprocess.run(
        [sys.executable, "-m", "agentgym", *words], capture_output=True, text=True, timeout=100
    )

    assert done.returncode == 0, done.stderr
    assert "'hangs_in_close' was not built" in " ".join(done.stdout.split())
