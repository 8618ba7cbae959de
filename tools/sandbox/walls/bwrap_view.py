"""The file system of a sandbox, as arguments of bubblewrap.

It is built from nothing: an empty read-only root, into which only what `Layout` opens is mounted.
Devices are mounted one by one, since bubblewrap's own /dev brings terminals, of which a machine has
a limited number.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from agentgym.tools.sandbox.limits import MIB
from agentgym.tools.sandbox.walls.layout import Layout
from agentgym.tools.sandbox.walls.packages import Entry

WORKDIR = "/work"
SCRATCH = ("/tmp", "/dev/shm")
PACKAGES = "/packages"

_DEVICES = tuple(f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom"))
_DEVICE_LINKS = {
    "/dev/fd": "/proc/self/fd",
    "/dev/stdin": "/proc/self/fd/0",
    "/dev/stdout": "/proc/self/fd/1",
    "/dev/stderr": "/proc/self/fd/2",
}


def view(layout: Layout, entries: Sequence[Entry], *, disk_mb: int) -> list[str]:
    """Mounts in order: what is open, what is closed in it, what can be written.

    Args:
        layout: what of this machine is open.
        entries: packages to be found at their `place`.
        disk_mb: size of each of the three file systems that can be written.
    """
    places = {place(layout, entry): entry.path for entry in entries}
    return [
        *_parents([*layout.roots, *layout.links, *_DEVICES, f"{PACKAGES}/x"]),
        *(word for root in layout.roots for word in ("--ro-bind", root, root)),
        *_closed(layout.hidden),
        *_links({**layout.links, **_DEVICE_LINKS}),
        *(word for device in _DEVICES for word in ("--dev-bind", device, device)),
        *(word for to, path in places.items() for word in ("--ro-bind", path, to)),
        *(word for path in layout.hidden for word in ("--remount-ro", path)),
        *_writable(disk_mb),
        *("--proc", "/proc", "--remount-ro", "/", "--chdir", WORKDIR),
    ]


def place(layout: Layout, entry: Entry) -> str:
    """Where a package is found.

    Where it is on this machine, if what lies around it is there too: packages of conda look for
    their libraries from where they lie, in the interpreter's folder.
    """
    is_at_home = layout.hides(entry.path) and Path(entry.path).name == entry.name
    return entry.path if is_at_home else f"{PACKAGES}/{entry.name}"


def import_paths(layout: Layout, entries: Sequence[Entry]) -> list[str]:
    """The folders of all packages."""
    folders = (str(Path(place(layout, entry)).parent) for entry in entries)
    return list(dict.fromkeys(folders))


def _parents(paths: Iterable[str]) -> Iterator[str]:
    """Made first and open to all: bubblewrap closes those it makes itself for a private source."""
    for folder in sorted({str(parent) for path in paths for parent in Path(path).parents} - {"/"}):
        yield from ("--perms", "0755", "--dir", folder)


def _closed(hidden: Iterable[str]) -> Iterator[str]:
    for path in hidden:
        if Path(path).is_dir():
            yield from ("--size", "4096", "--tmpfs", path)
        else:
            yield from ("--ro-bind", "/dev/null", path)


def _links(links: dict[str, str]) -> Iterator[str]:
    for link, to in links.items():
        yield from ("--symlink", to, link)


def _writable(disk_mb: int) -> Iterator[str]:
    for folder in (WORKDIR, *SCRATCH):
        yield from ("--perms", "1777", "--size", str(disk_mb * MIB), "--tmpfs", folder)
