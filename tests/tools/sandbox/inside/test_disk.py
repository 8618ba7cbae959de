"""Everything that takes up space is found, whatever it hides behind."""

import ctypes
import mmap
import os
import tempfile
import time
from pathlib import Path

import pytest

from agentgym.tools.sandbox.inside.disk import MAX_INODES, Disk

SIZE = 2**20
LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.mmap.restype = ctypes.c_void_p


def holds(folder: Path, megabytes: float) -> bool:
    """Whether it holds more than that, to go by this process and the folder."""
    return Disk([str(folder)]).is_full([os.getpid()], int(megabytes * SIZE))


def write(path: Path) -> None:
    path.write_bytes(os.urandom(2 * SIZE))


def test_files_and_folders_count(tmp_path: Path):
    """With all beneath."""
    write(tmp_path / "one")
    (tmp_path / "a" / "b").mkdir(parents=True)
    write(tmp_path / "a" / "b" / "two")

    assert holds(tmp_path, 3.9)
    assert not holds(tmp_path, 4.1)


def test_one_file_with_two_names_counts_once(tmp_path: Path):
    """It is there once."""
    write(tmp_path / "one")
    os.link(tmp_path / "one", tmp_path / "again")

    assert not holds(tmp_path, 2.1)


def test_holes_do_not_count(tmp_path: Path):
    """A sparse file of any size is small."""
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(2**30)

    assert not holds(tmp_path, 0.5)


def test_a_deleted_file_counts_while_it_is_open(tmp_path: Path):
    """Its space is free only once it is closed."""
    with tempfile.TemporaryFile(dir=tmp_path) as file:
        file.write(os.urandom(2 * SIZE))
        file.flush()

        assert holds(tmp_path, 1.9)
        assert not holds(tmp_path, 2.1)
    assert not holds(tmp_path, 0.1)


def test_a_deleted_file_counts_while_it_is_mapped(tmp_path: Path):
    """Without any descriptor; however little of it was mapped first."""
    write(tmp_path / "file")
    fd = os.open(tmp_path / "file", os.O_RDONLY)
    little, whole = _map(fd, mmap.PAGESIZE), _map(fd, 2 * SIZE)
    os.close(fd)
    os.unlink(tmp_path / "file")

    assert holds(tmp_path, 1.9)
    LIBC.munmap(ctypes.c_void_p(whole), ctypes.c_size_t(2 * SIZE))
    assert not holds(tmp_path, 1.9)
    LIBC.munmap(ctypes.c_void_p(little), ctypes.c_size_t(mmap.PAGESIZE))


def _map(fd: int, size: int) -> int:
    """The address; an `mmap` object would keep the file open."""
    shared = mmap.MAP_SHARED
    address = LIBC.mmap(None, ctypes.c_size_t(size), mmap.PROT_READ, shared, fd, ctypes.c_long(0))
    assert address not in (None, 2**64 - 1)
    return int(address)


def test_shared_memory_is_no_file(tmp_path: Path):
    """It counts as memory."""
    with mmap.mmap(-1, 4 * SIZE):
        assert not holds(tmp_path, 0.5)


def test_paths_too_long_to_be_followed_are_too_much(tmp_path: Path):
    """Nobody could tell what lies at their end."""
    fd = os.open(tmp_path, os.O_RDONLY)
    for _ in range(20):
        os.mkdir("x" * 250, dir_fd=fd)
        below = os.open("x" * 250, os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(fd)

    assert holds(tmp_path, 100)


@pytest.mark.skipif(os.geteuid() == 0, reason="root can list every folder")
def test_folders_that_cannot_be_listed_are_too_much(tmp_path: Path):
    """Files can be made in one all the same."""
    (tmp_path / "closed").mkdir()
    (tmp_path / "closed").chmod(0o300)

    assert holds(tmp_path, 100)


def test_too_many_files_are_too_much(tmp_path: Path):
    """A disk can also run out of those."""
    for number in range(2):
        (tmp_path / str(number)).mkdir()
    target = tmp_path / "0" / "x"
    for number in range(MAX_INODES + 1):
        os.mkdir(f"{target}{number}")

    assert holds(tmp_path, 1000)


def test_a_process_that_is_gone_has_nothing(tmp_path: Path):
    """It may end while it is looked at."""
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)

    assert not Disk([str(tmp_path)]).is_full([child], SIZE)


@pytest.mark.skipif(os.geteuid() == 0, reason="root can look into every process")
def test_a_process_that_stays_out_of_sight_is_too_much(tmp_path: Path):
    """Looks may fall into its end, though not for long."""
    disk = Disk([str(tmp_path)])

    assert not disk.is_full([1], SIZE)
    assert not disk.is_full([1], SIZE)
    time.sleep(0.6)
    assert disk.is_full([1], SIZE)
