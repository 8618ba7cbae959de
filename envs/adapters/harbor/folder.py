"""Reads a task directory: task.toml, instruction.md, environment/, tests/, solution/.

Whether it can be played here is decided before anything runs, from what the files say.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentgym.envs.adapters.harbor.dockerfile import Image, UnsupportedTaskError, read_dockerfile
from agentgym.envs.adapters.harbor.offline import offline, uses_pytest
from agentgym.errors import ConfigError

_PYTEST_INI = b"[pytest]\n"
"""Else pytest looks for one further up, where the agent's files lie."""
_MAX_FILE_BYTES = 8 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class HarborTask:
    """A task directory that can be played here."""

    folder: Path
    instruction: str
    image: Image
    tests: Mapping[str, bytes]
    """Files of tests/ by their path in it."""
    solution: Mapping[str, bytes] = field(default_factory=dict)
    verifier_env: Mapping[str, str] = field(default_factory=dict)
    verifier_timeout_s: float = 600.0

    @property
    def packages(self) -> tuple[str, ...]:
        """Installed distributions that the tests need."""
        return ("pytest",) if uses_pytest(self.tests["test.sh"].decode()) else ()


def task_folders(path: Path) -> list[Path]:
    """The task directories at a path: itself, or those in it, by name.

    Raises:
        ConfigError: there is none.
    """
    if (path / "task.toml").is_file():
        return [path]
    found = sorted(child.parent for child in path.glob("*/task.toml"))
    if not found:
        raise ConfigError(f"harbor: there is no task.toml in {str(path)!r} or in a folder of it")
    return found


def read_task(folder: Path) -> HarborTask:
    """One task directory.

    Raises:
        ConfigError: it is malformed.
        UnsupportedTaskError: it needs a container; says what for.
    """
    settings = _settings(folder)
    verifier, environment = settings.get("verifier", {}), settings.get("environment", {})
    _refuse_unsupported(settings)
    tests = _files(folder / "tests")
    if "test.sh" not in tests:
        raise ConfigError(f"harbor: {folder} has no tests/test.sh")
    script = offline(tests["test.sh"].decode(errors="replace"))
    tests["test.sh"] = script.encode()
    if uses_pytest(script):
        tests.setdefault("pytest.ini", _PYTEST_INI)
    image = _image(folder / "environment")
    for name in environment.get("env", {}):
        image.set_variable(name, f"[environment.env] {name}")
    return HarborTask(
        folder=folder,
        instruction=_text(folder / "instruction.md"),
        image=image,
        tests=tests,
        solution=_files(folder / "solution"),
        verifier_env=_literals(verifier.get("env", {})),
        verifier_timeout_s=float(verifier.get("timeout_sec", 600.0)),
    )


def _settings(folder: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(_text(folder / "task.toml"))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"harbor: {folder / 'task.toml'}: {error}") from error


def _refuse_unsupported(settings: Mapping[str, Any]) -> None:
    environment = settings.get("environment", {})
    for key in ("docker_image", "gpus", "mcp_servers", "healthcheck"):
        if environment.get(key):
            raise UnsupportedTaskError(f"[environment] {key} = {environment[key]!r}")
    mode = settings.get("verifier", {}).get("environment_mode", "shared")
    if mode != "shared":
        raise UnsupportedTaskError(f"[verifier] environment_mode = {mode!r}")
    if settings.get("steps"):
        raise UnsupportedTaskError("it has several steps")


def _image(environment: Path) -> Image:
    others = [*environment.glob("docker-compose*"), *environment.glob("*.def")]
    if others:
        raise UnsupportedTaskError(f"environment/{others[0].name} needs a container")
    dockerfile = environment / "Dockerfile"
    image = read_dockerfile(dockerfile) if dockerfile.is_file() else Image()
    if str(image.workdir) == "/":
        raise UnsupportedTaskError("the Dockerfile names no WORKDIR for a sandbox to stand for")
    return image


def _literals(variables: Mapping[str, Any]) -> dict[str, str]:
    for name, value in variables.items():
        if "${" in str(value):
            raise UnsupportedTaskError(f"[verifier.env] {name} takes a variable of this machine")
    return {str(name): str(value) for name, value in variables.items()}


def _files(folder: Path) -> dict[str, bytes]:
    found = {}
    for file in sorted(folder.rglob("*")):
        if file.is_file() and "__pycache__" not in file.parts:
            if file.stat().st_size > _MAX_FILE_BYTES:
                raise UnsupportedTaskError(f"{file.relative_to(folder.parent)} is too large")
            found[str(file.relative_to(folder))] = file.read_bytes()
    return found


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"harbor: {file} cannot be read: {error}") from error
