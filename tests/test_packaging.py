"""What users install: every file of the four folders, once, under `agentgym`."""

import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MAPPED = ("envs", "tools", "trainer")
BUILD = "import sys; from setuptools import build_meta; build_meta.build_{kind}(sys.argv[1])"


def run(*command: str | Path, cwd: Path, **env: str) -> str:
    """Output of a command that must succeed, in an environment without this process's paths."""
    done = subprocess.run(
        command, cwd=cwd, env={"PATH": "/usr/bin:/bin", **env}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


def project_files() -> list[str]:
    """Everything a commit of the working tree would hold, links included."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [name for name in listed.splitlines() if (ROOT / name).exists()]


def installed_names(files: list[str]) -> list[str]:
    """Where the files of the four folders stand in an installation, sorted."""
    own = [
        name for name in files if name.startswith("agentgym/") and not (ROOT / name).is_symlink()
    ]
    mapped = [f"agentgym/{name}" for name in files if name.split("/")[0] in MAPPED]
    return sorted(own + mapped)


def build(kind: str, source: Path, out: Path) -> Path:
    """A wheel or sdist of `source`, made offline with the setuptools that is installed."""
    run(sys.executable, "-c", BUILD.format(kind=kind), out, cwd=source)
    [built] = out.iterdir()
    return built


def contents(wheel: Path) -> list[str]:
    """Names in a wheel without its metadata, sorted, duplicates kept."""
    names = zipfile.ZipFile(wheel).namelist()
    return sorted(name for name in names if ".dist-info/" not in name)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of the project, so that building leaves no traces in it."""
    copy = tmp_path / "checkout"
    for name in project_files():
        target = copy / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target, follow_symlinks=False)
    return copy


@pytest.fixture
def fresh_venv(tmp_path: Path) -> Path:
    """A virtual environment that finds the dependencies installed here, but not this project."""
    folder = tmp_path / "venv"
    venv.create(folder, with_pip=False)
    scheme = {"base": str(folder), "platbase": str(folder)}
    packages = Path(sysconfig.get_path("purelib", vars=scheme))
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder


def install(into: Path, *what: str | Path) -> None:
    """Offline, by this process's pip; one of its own takes seconds to make."""
    offline = ("install", "--no-index", "--no-deps", "--no-build-isolation")
    pip = (sys.executable, "-m", "pip", "--python", into / "bin/python", *offline)
    run(*pip, *what, cwd=into)


def test_the_links_lead_to_the_folders() -> None:
    """Type checkers and editors see the packages through them."""
    for folder in MAPPED:
        assert (ROOT / "agentgym" / folder).readlink() == Path("..") / folder


@pytest.mark.slow
def test_the_sdist_holds_every_file_once_and_makes_the_same_wheel(
    checkout: Path, tmp_path: Path
) -> None:
    """An index serves sdists too, and they have no links."""
    sdist = build("sdist", checkout, tmp_path / "dist")
    with tarfile.open(sdist) as archive:
        names = [name.split("/", 1)[1] for name in archive.getnames() if "/" in name]
        archive.extractall(tmp_path / "unpacked", filter="data")
    [source] = (tmp_path / "unpacked").iterdir()
    wheel = build("wheel", source, tmp_path / "from_sdist")

    assert not [name for name in names if name.startswith(tuple(f"agentgym/{f}" for f in MAPPED))]
    assert contents(wheel) == installed_names(project_files())


@pytest.mark.slow
def test_the_wheel_holds_every_file_once_and_works_away_from_the_checkout(
    checkout: Path, fresh_venv: Path, tmp_path: Path
) -> None:
    """Data files and new sub-packages are the ones that a build forgets.

    The command and the packages come from the installation alone.
    """
    wheel = build("wheel", checkout, tmp_path / "dist")
    assert contents(wheel) == installed_names(project_files())
    install(fresh_venv, wheel)
    where = run(
        fresh_venv / "bin/python",
        "-c",
        "import agentgym.envs.base as base; print(base.__file__)",
        cwd=tmp_path,
    )

    assert Path(where).is_relative_to(fresh_venv)
    assert "train" in run(fresh_venv / "bin/agentgym", "--help", cwd=tmp_path)


@pytest.mark.slow
def test_an_editable_install_sees_new_files(
    checkout: Path, fresh_venv: Path, tmp_path: Path
) -> None:
    """A new env is importable at once, without installing again."""
    install(fresh_venv, "-e", checkout)
    new = checkout / "envs/brand_new"
    new.mkdir()
    (new / "__init__.py").write_text("ANSWER = 42\n")
    (checkout / "trainer/brand_new.py").write_text("ANSWER = 43\n")
    code = (
        "from agentgym.envs.brand_new import ANSWER as a; "
        "from agentgym.trainer.brand_new import ANSWER as b; print(a, b)"
    )

    assert run(fresh_venv / "bin/python", "-c", code, cwd=tmp_path) == "42 43"
