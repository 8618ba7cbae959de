"""Packages for code in a sandbox: their own modules, and those of what they require."""

import pytest

from agentgym.errors import UsageError
from agentgym.tools.sandbox.walls.packages import entries


def _names(*packages: str) -> list[str]:
    return [entry.name for entry in entries(packages)]


def test_only_modules_and_libraries_are_shown() -> None:
    """No metadata and no programs: they tell where things lie on this machine."""
    assert _names("numpy") == ["numpy", "numpy.libs"]


def test_what_a_package_requires_comes_with_it() -> None:
    """A single file is a module too."""
    names = _names("pydantic")

    assert {"pydantic", "pydantic_core", "typing_extensions.py"} <= set(names)
    assert not {"agentgym", "numpy", "torch"} & set(names)


def test_nothing_asked_for_is_nothing() -> None:
    assert entries(()) == ()


@pytest.mark.parametrize("name", ["no-such-package", "", "a b", "../x"])
def test_a_package_that_is_not_installed_is_named(name: str) -> None:
    """In one line, with what to do."""
    with pytest.raises(UsageError, match="is not installed: pip install") as caught:
        entries((name,))

    assert repr(name) in str(caught.value)


@pytest.mark.parametrize("name", ["agentgym-rl", "agentgym_rl", "Agentgym.RL"])
def test_this_package_is_never_shown(name: str) -> None:
    """It holds tasks and their answers."""
    with pytest.raises(UsageError, match="answers"):
        entries((name,))
