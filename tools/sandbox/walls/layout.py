"""What code in a sandbox may read of this machine: an interpreter, its library, common programs.

Everything else is closed, and inside what is open some folders are closed again: installed packages
(they hold the tasks and their answers, and tokens), the project, the home. Of two rules for one
path the longer wins, so that a Python under a home is open while the home is not.
"""

import os
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from glob import glob
from pathlib import Path
from typing import NamedTuple

import agentgym
from agentgym.errors import UsageError

_PROGRAMS = ("bin", "lib", "lib32", "lib64", "libx32", "libexec", "sbin", "include", "share")
"""Of /usr: /usr/local and /usr/src are left out, where people keep their own."""
_ETC = ("/etc/ld.so.cache", "/etc/localtime", "/etc/alternatives")
_STORES = ("/nix/store", "/gnu/store")
"""Where a package depends on folders beside it, all world-readable by design."""
_VERSIONED = f"python{sys.version_info.major}.{sys.version_info.minor}"
_INSTALLED = ("site-packages", "dist-packages")


_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""One each: address space is reserved for every thread."""


class Allowed(NamedTuple):
    """The layout for a wall that can open paths but not close one inside an open one."""

    paths: list[str]
    """Files and folders to be read, with all beneath."""
    listed: list[str]
    """Folders with something closed beneath, to be listed only: imports list their folders."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Real paths that may be read; none of a tuple lies inside another one of it."""

    python: str
    """The interpreter to run."""
    roots: tuple[str, ...]
    """Files and folders that are open."""
    hidden: tuple[str, ...]
    """Files and folders beneath a root that are closed."""
    links: Mapping[str, str] = field(default_factory=dict)
    """Links to what is open, such as /bin to /usr/bin, for a file system that is built anew."""
    search: tuple[str, ...] = ("/usr/bin", "/bin")
    """The folders of PATH."""

    def environment(self, home: str, *, import_paths: Sequence[str] = ()) -> dict[str, str]:
        """All environment variables of code in a sandbox."""
        packages = {"PYTHONPATH": ":".join(import_paths)} if import_paths else {}
        return {
            "PATH": ":".join(self.search),
            "HOME": home,
            "USER": "sandbox",
            "LANG": "C.UTF-8",
            "PYTHONHASHSEED": "0",
            "PYTHONDONTWRITEBYTECODE": "1",
            **dict.fromkeys(_THREADS, "1"),
            **packages,
        }

    def readable(self, path: str) -> bool:
        """Whether a path, after following its links, is open."""
        real = os.path.realpath(path)
        return _covered(real, self.roots) and not _covered(real, self.hidden)

    def hides(self, path: str) -> bool:
        """Whether a real path is closed inside something that is open."""
        return _covered(path, self.hidden)

    def allowed(self) -> Allowed:
        """The same as a list of open paths, found by descending towards what is closed."""
        found = Allowed([], [])
        for root in self.roots:
            _descend(root, self.hidden, found)
        return found


@cache
def this_machine() -> Layout:
    """The layout for the interpreter of this process, and for its working directory by now.

    Raises:
        UsageError: the interpreter under this one's virtual environment cannot be found.
    """
    python = _base_interpreter()
    prefix = Path(python).parent.parent
    needed = _outermost(_existing([python, *_library()]))
    wanted = [*_system(), *_interpreter(prefix)]
    roots = _outermost([*_existing(wanted), *needed])
    hidden = _outermost(
        path
        for path in _existing(_private(prefix))
        if _covered(path, roots) and not any(_inside(item, path) for item in (*roots, *needed))
    )
    links = {path: os.path.realpath(path) for path in wanted if os.path.islink(path)}
    return Layout(
        python=python,
        roots=roots,
        hidden=hidden,
        links={path: to for path, to in links.items() if not _covered(path, roots)},
        search=tuple(dict.fromkeys([str(prefix / "bin"), "/usr/bin", "/bin"])),
    )


def _base_interpreter() -> str:
    guesses = [Path(sys.base_prefix, "bin", _VERSIONED), Path(os.path.realpath(sys.executable))]
    for guess in guesses:
        if guess.is_file():
            return os.path.realpath(guess)
    tried = " and ".join(map(str, guesses))
    raise UsageError(f"no interpreter for the sandbox: tried {tried}; start Python from a file")


def _library() -> list[str]:
    """The standard library: what must not be closed."""
    pure = Path(sysconfig.get_path("stdlib"))
    compiled = sysconfig.get_path("platstdlib", vars={"platbase": sys.base_exec_prefix})
    archive = pure.with_name(_VERSIONED.replace(".", "") + ".zip")
    return [str(pure), f"{pure}/lib-dynload", compiled, f"{compiled}/lib-dynload", str(archive)]


def _system() -> list[str]:
    plain = [f"/{name}" for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32")]
    return [*(f"/usr/{name}" for name in _PROGRAMS), *plain, *_ETC]


def _interpreter(prefix: Path) -> list[str]:
    """Its programs and shared libraries."""
    programs = [str(prefix / "bin" / name) for name in ("python", "python3", _VERSIONED)]
    stores = [store for store in _STORES if _inside(str(prefix), store)]
    return [*programs, str(prefix / "lib"), str(prefix / "lib64"), *stores]


def _private(prefix: Path) -> Iterator[str]:
    """What is closed wherever it lies."""
    library = {os.path.realpath(path) for path in _library()}
    yield from (path for path in sys.path if path and os.path.realpath(path) not in library)
    yield from ("/proc/self/cwd", os.path.expanduser("~"))
    yield str(Path(agentgym.__file__).resolve().parent.parent)
    if sys.prefix != sys.base_prefix:
        yield sys.prefix
    for base in {"/usr", "/usr/local", str(prefix)}:
        for installed in _INSTALLED:
            yield from glob(f"{base}/lib*/python*/{installed}")


def _existing(paths: Iterable[str]) -> list[str]:
    return [os.path.realpath(path) for path in paths if os.path.exists(path)]


def _outermost(paths: Iterable[str]) -> tuple[str, ...]:
    kept: list[str] = []
    for path in sorted(set(paths)):
        if not _covered(path, kept):
            kept.append(path)
    return tuple(kept)


def _inside(path: str, folder: str) -> bool:
    """Whether a path is a folder or lies beneath it."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _covered(path: str, folders: Iterable[str]) -> bool:
    return any(_inside(path, folder) for folder in folders)


def _descend(path: str, hidden: tuple[str, ...], found: Allowed) -> None:
    if path in hidden:
        return
    if not any(_inside(closed, path) for closed in hidden):
        found.paths.append(path)
        return
    found.listed.append(path)
    with os.scandir(path) as entries:
        for entry in entries:
            if not entry.is_symlink():
                _descend(entry.path, hidden, found)
