"""What code may read: an interpreter that works, and nothing of the project or of its packages."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import agentgym
from agentgym.tools.sandbox.walls.layout import Layout, this_machine

NAMES = ("a", "b", "c")


@pytest.mark.parametrize(
    "path",
    [
        agentgym.__file__,
        pytest.__file__,
        os.path.expanduser("~"),
        os.getcwd(),
        sys.prefix,
        "/etc/shadow",
        "/etc/passwd",
        "/usr/lib/python3/dist-packages",
        "/proc",
        "/",
    ],
)
def test_what_is_private_is_closed(path: str) -> None:
    """Tasks with their answers, keys and tokens lie in these."""
    assert not this_machine().readable(path)


@pytest.mark.parametrize("path", [os.__file__, "/bin/sh", "/usr/bin/env", "/usr/share"])
def test_what_programs_need_is_open(path: str) -> None:
    """Through links too: /bin is one on most systems."""
    assert this_machine().readable(path)


def test_the_interpreter_is_not_the_one_of_the_virtual_environment() -> None:
    """Started with nothing but its own library it knows no package of ours."""
    layout = this_machine()
    code = "import sys, sqlite3, ctypes, json; print(sys.prefix); import agentgym"
    run = subprocess.run([layout.python, "-I", "-S", "-c", code], capture_output=True, text=True)

    assert layout.readable(layout.python)
    assert os.path.realpath(run.stdout.strip()) == os.path.realpath(sys.base_prefix)
    assert "No module named 'agentgym'" in run.stderr


def test_links_lead_to_what_is_open() -> None:
    """A file system that is built anew gets them as links."""
    layout = this_machine()

    assert all(layout.readable(to) for to in layout.links.values())
    assert not any(link in layout.roots for link in layout.links)


def test_environment_names_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is written down, not copied."""
    monkeypatch.setenv("HF_TOKEN", "secret")

    environment = this_machine().environment("/work", import_paths=["/packages"])
    assert "secret" not in environment.values()
    assert environment["HOME"] == "/work"
    assert environment["PYTHONPATH"] == "/packages"


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """27 files in three levels of folders, and a link."""
    root = Path(os.path.realpath(tmp_path_factory.mktemp("tree")))
    files = [root / x / y / f"{z}.txt" for x in NAMES for y in NAMES for z in NAMES]
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("x")
    (root / "a" / "link").symlink_to(root / "b")
    return root


_PATHS = st.sets(st.lists(st.sampled_from(NAMES), min_size=1, max_size=2).map("/".join), max_size=4)


@given(hidden=_PATHS)
def test_a_list_of_what_is_allowed_says_the_same(tree: Path, hidden: set[str]) -> None:
    """Whatever is closed: a file is beneath an allowed path exactly if it is readable."""
    closed = tuple(str(tree / path) for path in hidden)
    layout = Layout(python="", roots=(str(tree),), hidden=closed)
    paths, listed = layout.allowed()

    for file in tree.glob("*/*/*.txt"):
        beneath = any(file.is_relative_to(path) for path in paths)
        assert beneath == layout.readable(str(file)), file
    assert not any("link" in path for path in paths)
    assert all(any(path.startswith(f"{folder}/") for path in closed) for folder in listed)
