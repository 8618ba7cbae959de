"""Processes are seen for what they are, whatever they make of themselves."""

import ctypes
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sandbox_kit import launcher

from agentgym.tools.sandbox.base import Script
from agentgym.tools.sandbox.host.provider import LocalProvider
from agentgym.tools.sandbox.inside.disk import Disk
from agentgym.tools.sandbox.inside.processes import read
from agentgym.tools.sandbox.walls.syscalls import machine, this_machine

EXIT = machine(this_machine()).calls["exit"].number
MB = 2**20


@contextmanager
def headless(prepare: Callable[[], object]) -> Iterator[int]:
    """A process whose first thread has ended while another one goes on."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        kept = prepare()
        threading.Thread(target=lambda: (kept, os.write(write_end, b"x"), time.sleep(30))).start()
        ctypes.CDLL(None).syscall(EXIT, 0)
    os.read(read_end, 1)
    try:
        yield child
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(read_end)
        os.close(write_end)


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]


def test_a_process_without_its_first_thread_is_alive():
    """The kernel calls it a zombie and gives it no memory; it runs, and has some."""
    with headless(lambda: bytearray(os.urandom(1) * (50 * MB))) as pid:
        while _state(pid) != "Z":
            time.sleep(0.01)
        process = read(pid)

    assert process is not None
    assert not process.is_zombie
    assert process.rss_mb > 50


def test_a_zombie_is_one():
    """It only waits to be looked at."""
    child = os.fork()
    if child == 0:
        os._exit(0)
    while _state(child) != "Z":
        time.sleep(0.01)
    process = read(child)
    os.waitpid(child, 0)

    assert process is not None
    assert process.is_zombie
    assert read(child) is None


def test_files_of_other_threads_count(tmp_path: Path):
    """The first one, which has ended, has none any more."""

    def write() -> object:
        file = tempfile.TemporaryFile(dir=tmp_path)  # noqa: SIM115 - it is to stay open
        file.write(os.urandom(2 * MB))
        file.flush()
        return file

    with headless(write) as pid:
        while _state(pid) != "Z":
            time.sleep(0.01)

        assert Disk([str(tmp_path)]).is_full([pid], MB)


HEADLESS = f"""
import ctypes, os, sys, threading, time
for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        os.closerange(0, 3)
        threading.Thread(target=time.sleep, args=(20,)).start()
        ctypes.CDLL(None).prctl(15, MARK, 0, 0, 0)
        ctypes.CDLL(None).syscall({EXIT}, 0)
time.sleep(0.2)
"""


@pytest.mark.parametrize("backend", ["bwrap", "landlock"])
async def test_none_of_them_outlives_its_call(backend: str):
    """Neither as a thread without its process, nor otherwise."""
    mark = f"headless{os.getpid()}"[:15]
    provider = LocalProvider(launcher(backend), warm=0)
    sandbox = await provider.open()
    try:
        program = HEADLESS.replace("MARK", repr(mark.encode()))
        [result] = await sandbox.run_tests(program, [Script()])

        assert result.ok, result
        assert _named(mark) == []
    finally:
        await provider.aclose()


def _named(name: str) -> list[str]:
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if Path(f"/proc/{pid}/comm").read_text().strip() == name:
                found.append(pid)
        except OSError:
            continue
    return found
