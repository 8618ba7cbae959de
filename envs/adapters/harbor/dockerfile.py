"""What a Dockerfile asks for, if a sandbox can give it: a base image, a folder, some files.

Nothing is built. An instruction that would change the machine makes the task unsupported, with the
line as the reason.
"""

import json
import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from agentgym.errors import UsageError

_BASES = re.compile(
    r"(?:docker\.io/)?(?:library/)?(?:ubuntu|debian|python|alpine|bash|busybox)(?::[\w.-]+)?",
    re.IGNORECASE,
)
_IGNORED = {"CMD", "ENTRYPOINT", "EXPOSE", "LABEL", "MAINTAINER", "SHELL", "STOPSIGNAL", "USER"}
_HARMLESS_VARIABLES = {
    "DEBIAN_FRONTEND",
    "LANG",
    "LC_ALL",
    "PIP_NO_CACHE_DIR",
    "PYTHONDONTWRITEBYTECODE",
    "PYTHONUNBUFFERED",
    "TZ",
}
_HARMLESS = re.compile(r"mkdir -p [\w./ -]+|chmod [\w+=,-]+ [\w./ -]+")


class UnsupportedTaskError(UsageError):
    """The task needs a container; says what for."""


@dataclass(slots=True, kw_only=True)
class Image:
    """The part of an image that a sandbox can have."""

    workdir: PurePosixPath = field(default_factory=lambda: PurePosixPath("/"))
    copies: dict[str, Path] = field(default_factory=dict)
    """Files of the build context by their path below the working directory."""

    def set_variable(self, name: str, line: str) -> None:
        """Accept a variable that changes nothing; there is no other way to have one.

        Raises:
            UnsupportedTaskError: it could matter.
        """
        if name not in _HARMLESS_VARIABLES:
            raise UnsupportedTaskError(f"the environment variable {name} is set: {line}")


def read_dockerfile(path: Path) -> Image:
    """The image of a Dockerfile.

    Raises:
        UnsupportedTaskError: it needs more than a base image.
    """
    image = Image()
    for line in _lines(path.read_text(encoding="utf-8")):
        word, _, rest = line.partition(" ")
        _apply(image, word.upper(), rest.strip(), path.parent, line)
    return image


def _apply(image: Image, word: str, rest: str, context: Path, line: str) -> None:
    if word in _IGNORED or (word == "RUN" and _HARMLESS.fullmatch(rest)):
        return
    if word == "FROM" and _BASES.fullmatch(rest.split()[0]) and " as " not in rest.lower():
        return
    if word == "WORKDIR" and not image.copies:
        image.workdir = image.workdir / rest
    elif word == "ENV":
        for name in _variables(rest):
            image.set_variable(name, line)
    elif word in ("COPY", "ADD"):
        _copy(image, rest, context, line)
    else:
        raise UnsupportedTaskError(f"the Dockerfile needs a container: {line}")


def _copy(image: Image, rest: str, context: Path, line: str) -> None:
    words = json.loads(rest) if rest.startswith("[") else shlex.split(rest)
    if len(words) < 2 or any(word.startswith("--") or "://" in word for word in words):
        raise UnsupportedTaskError(f"the Dockerfile needs a container: {line}")
    *sources, target = words
    into = target.endswith(("/", ".")) or len(sources) > 1
    for source in sources:
        for file, name in _files(context, source, line):
            place = image.workdir / target / name if into or not name else image.workdir / target
            image.copies[_below(image.workdir, place, line)] = file


def _files(context: Path, source: str, line: str) -> list[tuple[Path, str]]:
    """Files that a source names, with their names at the target."""
    root = (context / source).resolve()
    if not root.is_relative_to(context.resolve()) or not root.exists():
        raise UnsupportedTaskError(f"the Dockerfile copies what is not beside it: {line}")
    if root.is_file():
        return [(root, root.name)]
    return [(file, str(file.relative_to(root))) for file in sorted(root.rglob("*")) if _is(file)]


def _is(file: Path) -> bool:
    return file.is_file() and not file.is_symlink() and file.name != "Dockerfile"


def _below(workdir: PurePosixPath, place: PurePosixPath, line: str) -> str:
    if not place.is_relative_to(workdir) or ".." in place.parts:
        raise UnsupportedTaskError(f"the Dockerfile copies outside its WORKDIR: {line}")
    return str(place.relative_to(workdir))


def _variables(rest: str) -> list[str]:
    words = shlex.split(rest)
    if words and "=" not in words[0]:
        return words[:1]
    return [word.split("=", 1)[0] for word in words]


def _lines(text: str) -> list[str]:
    joined = re.sub(r"\\\n", " ", re.sub(r"^\s*#.*\n?", "", text, flags=re.MULTILINE))
    return [" ".join(line.split()) for line in joined.splitlines() if line.strip()]
