"""Registries: lazy entries, clashes and suggestions."""

import sys
from importlib.metadata import EntryPoint
from typing import Any

import pytest

import agentgym.registry
from agentgym.errors import ConfigError, NotRegisteredError
from agentgym.registry import Registry


@pytest.fixture
def shapes() -> Registry[Any]:
    return Registry("shape")


def test_an_object_is_found_under_its_name(shapes: Registry[Any]) -> None:
    """The plain way in and out."""
    shapes.register("list", list)

    assert shapes.get("list") is list
    assert shapes.make("list") == []


def test_register_decorates(shapes: Registry[Any]) -> None:
    """Plugin files register what they define in one line."""

    @shapes.register("square")
    def square(side: int) -> int:
        return side * side

    assert square(3) == 9
    assert shapes.make("square", side=4) == 16


def test_a_path_is_imported_when_the_object_is_asked_for(shapes: Registry[Any]) -> None:
    """Listing back ends must not load their libraries."""
    sys.modules.pop("colorsys", None)
    shapes.register("hue", "colorsys:rgb_to_hsv")

    assert shapes.names() == ["hue"]
    assert "colorsys" not in sys.modules
    assert shapes.get("hue") is sys.modules["colorsys"].rgb_to_hsv


def test_another_object_under_a_taken_name_is_refused(shapes: Registry[Any]) -> None:
    """Silently replacing a loss or an env changes an experiment without a trace."""
    shapes.register("a", list)
    shapes.register("a", list)

    with pytest.raises(ConfigError, match="'a' is already registered"):
        shapes.register("a", dict)
    assert shapes.get("a") is list


def test_an_unknown_name_brings_a_suggestion(shapes: Registry[Any]) -> None:
    """Most unknown names are typing errors."""
    shapes.register("triangle", list)

    with pytest.raises(NotRegisteredError, match=r"no shape .*'triangel'.*mean 'triangle'"):
        shapes.get("triangel")


@pytest.mark.parametrize("path", ["no_such_module:thing", "math:no_such_thing", "math"])
def test_a_broken_path_is_one_line(shapes: Registry[Any], path: str) -> None:
    """The user sees what is broken, not a traceback of the registry."""
    shapes.register("broken", path)

    with pytest.raises(ConfigError, match=f"^shape 'broken' cannot be loaded from {path}: .*$"):
        shapes.get("broken")


def test_entry_points_are_read_only_on_a_miss(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading the metadata of every installed package is slow; known names do without."""
    lookups: list[str] = []

    def entry_points(*, group: str) -> list[EntryPoint]:
        lookups.append(group)
        return [EntryPoint("foreign", "math:pi", group)]

    monkeypatch.setattr(agentgym.registry, "entry_points", entry_points)
    shapes: Registry[Any] = Registry("shape", "test.shapes")
    shapes.register("own", list)
    shapes.get("own")
    assert lookups == []

    assert shapes.get("foreign") == pytest.approx(3.14159, abs=1e-4)
    assert shapes.get("foreign")
    assert lookups == ["test.shapes"]
    assert shapes.names() == ["foreign", "own"]
