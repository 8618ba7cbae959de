"""Plugin files: imported once, and never more than one line of complaint."""

import sys
from pathlib import Path

import pytest

from agentgym.errors import ConfigError
from agentgym.plugins import load_plugins
from agentgym.registry import REWARDS


def _write(folder: Path, text: str, name: str = "my_plugin.py") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_a_plugin_registers_what_it_defines(tmp_path: Path) -> None:
    """The way in for everything a user adds; a second load is nothing new."""
    path = _write(
        tmp_path,
        "from agentgym.registry import REWARDS\n"
        "@REWARDS.register('test_plugins_one')\n"
        "def one(output): return 1.0\n",
    )
    load_plugins([path])
    load_plugins([str(path), path])

    assert REWARDS.get("test_plugins_one")(None) == 1.0


def test_plugins_of_one_file_name_stay_apart(tmp_path: Path) -> None:
    """Two projects may both call their file plugin.py, and neither may shadow a package."""
    for value in (1, 2):
        folder = tmp_path / str(value)
        folder.mkdir()
        source = f"from agentgym.registry import REWARDS\nREWARDS.register('json_{value}', int)\n"
        load_plugins([_write(folder, source, "json.py")])

    assert {"json_1", "json_2"} <= set(REWARDS.names())
    assert sys.modules["json"].__name__ == "json"
    assert str(tmp_path / "1") not in sys.path


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("x = 1\ndef f(:\n", r":2: SyntaxError: "),
        ("x = 1\n\nraise ValueError('two\\nlines')\n", r":3: ValueError: two lines$"),
        ("def f():\n    return 1 / 0\n\nf()\n", r":2: ZeroDivisionError: "),
        ("import no_such_module\n", r":1: ModuleNotFoundError: No module named 'no_such_module'"),
        ("import sys\nsys.exit(3)\n", r":2: SystemExit: 3$"),
        (
            "from agentgym.registry import REWARDS\n"
            "REWARDS.register('test_plugins_clash', int)\n"
            "REWARDS.register('test_plugins_clash', str)\n",
            r":3: ConfigError: reward 'test_plugins_clash' is already registered",
        ),
    ],
)
def test_a_broken_plugin_is_one_line_with_file_and_line(
    tmp_path: Path, source: str, complaint: str
) -> None:
    """Whatever a plugin does wrong, its author learns where."""
    path = _write(tmp_path, source)

    with pytest.raises(ConfigError, match=complaint) as caught:
        load_plugins([path])
    assert str(caught.value).startswith(f"plugin {path}:")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["missing.py", "plugin.txt"])
def test_a_file_that_is_no_python_file_is_named(tmp_path: Path, name: str) -> None:
    """A typing error in a path is the most common mistake."""
    (tmp_path / "plugin.txt").write_text("")

    with pytest.raises(ConfigError, match=f"plugin .*{name}: there is no such Python file"):
        load_plugins([tmp_path / name])


def test_a_repaired_plugin_can_be_loaded(tmp_path: Path) -> None:
    """A notebook goes on after a mistake."""
    path = _write(tmp_path, "1 / 0\n")
    with pytest.raises(ConfigError):
        load_plugins([path])
    path.write_text("x = 1  # repaired\n")

    load_plugins([path])
