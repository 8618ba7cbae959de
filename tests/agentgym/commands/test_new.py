"""`agentgym new`: what it writes can be installed, passes its own tests, and passes the check."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from agentgym.cli import main

KINDS = {"env": "coin-boxes", "tool": "word-count"}


def run(*command: str | Path, cwd: Path, **env: str) -> str:
    """Output of a command that must succeed."""
    done = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=cwd,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(params=KINDS)
def package(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The folder of a new package."""
    kind: str = request.param
    assert main(["new", kind, KINDS[kind], "--dir", str(tmp_path)]) == 0
    return tmp_path / KINDS[kind]


def test_the_files_are_python_and_hold_no_placeholder(package: Path) -> None:
    """All values are filled in."""
    files = {path.relative_to(package).as_posix(): path for path in package.rglob("*.*")}
    module = package.name.replace("-", "_")

    assert {"pyproject.toml", "README.md", f"{module}/__init__.py"} < set(files)
    assert len(files) == 5
    for name, path in files.items():
        text = path.read_text(encoding="utf-8")
        assert "$" not in text, name
        if path.suffix == ".py":
            compile(text, name, "exec")


def test_the_files_are_as_this_project_formats_its_own(package: Path) -> None:
    """Whoever copies them learns from them."""
    run("ruff", "format", "--check", "--line-length", "100", package, cwd=package)
    run("ruff", "check", "--line-length", "100", "--select", "E,F,I,UP,B", package, cwd=package)


@pytest.mark.slow
def test_an_installed_package_passes_the_check_and_its_own_tests(package: Path) -> None:
    """Through its entry point, from anywhere."""
    site = package.parent / "site"
    offline = ("--no-deps", "--no-build-isolation", "--no-index")
    run("pip", "install", *offline, "--target", site, package, cwd=package.parent)
    flag = ["--tool"] if package.name == KINDS["tool"] else []
    size = [] if flag else ["--tasks", "2"]
    path = {"PYTHONPATH": str(site)}

    out = run("agentgym", "check", package.name, *flag, *size, cwd=site, **path)
    listed = run("agentgym", "tools" if flag else "envs", "--names", cwd=site, **path)
    tested = run("pytest", "-q", "-p", "no:cacheprovider", cwd=package)

    assert "passed: " in out
    assert package.name.replace("-", "_") in listed.replace("-", "_").split()
    assert " passed" in tested


@pytest.mark.slow
def test_an_editable_package_is_found(package: Path, tmp_path: Path) -> None:
    """As its README says: `pip install -e .`, here beside this process's packages."""
    offline = ("--no-deps", "--no-build-isolation", "--no-index")
    site = tmp_path / "editable"
    run("pip", "install", *offline, "--target", site, "-e", package, cwd=tmp_path)
    path = os.pathsep.join([str(site), str(package)])
    kind = "tools" if package.name == KINDS["tool"] else "envs"

    listed = run("agentgym", kind, "--names", cwd=tmp_path, PYTHONPATH=path)

    assert package.name.replace("-", "_") in listed.replace("-", "_").split()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("", "KIND is required"),
        ("env", "NAME is required"),
        ("enf x", "KIND enf: should be 'env' or 'tool'"),
        ("env Coin", "NAME 'Coin' must be"),
        ("env coin--box", "NAME 'coin--box' must be"),
        ("env 9lives", "NAME '9lives' must be"),
        ("env ../coin", "NAME '../coin' must be"),
        ("env coin.box", "NAME 'coin.box' must be"),
        (f"env {'x' * 41}", "at most 40"),
        ("env class", "a word of Python's own"),
        ("env json", "a word of Python's own"),
        ("env agentgym", "a word of Python's own"),
        ("env numpy", "a module 'numpy' is installed"),
        ("env calculator", "this env is registered already"),
        ("tool calculator", "this tool is registered already"),
        ("env coins --dir nope", "'nope' does not exist"),
        ("env coins again", "'again'"),
    ],
)
def test_a_bad_name_is_refused_in_one_line(
    arguments: str,
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """And nothing is written."""
    monkeypatch.chdir(tmp_path)

    code = main(["new", *arguments.split()])

    err = capsys.readouterr().err
    assert code == 2
    assert words in err
    assert err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_an_existing_folder_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It may hold somebody's work."""
    (tmp_path / "coin-boxes").mkdir()

    code = main(["new", "env", "coin-boxes", "--dir", str(tmp_path)])

    assert code == 2
    assert "exists: choose another NAME" in capsys.readouterr().err
    assert not list((tmp_path / "coin-boxes").iterdir())
