"""No sandbox outlives the process that opened it, however that ends."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from processes_kit import alive, bwrap_provider, descendants, name
from sandbox_kit import launcher

KIT = Path(__file__).parents[3] / "kits" / "holding_kit.py"
PATIENCE_S = 5.0
BACKENDS = ("bwrap", "landlock")


def _hold(backend: str, folder: Path) -> tuple["subprocess.Popen[str]", list[int]]:
    launcher(backend)
    environment = {**os.environ, "TMPDIR": str(folder), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, KIT, backend], stdout=subprocess.PIPE, text=True, env=environment
    )
    assert process.stdout is not None
    pids = json.loads(process.stdout.readline())["pids"]
    process.stdout.close()
    return process, pids


def _wait_until_gone(pids: list[int]) -> list[int]:
    end = time.monotonic() + PATIENCE_S
    while (left := alive(pids)) and time.monotonic() < end:
        time.sleep(0.02)
    return left


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "backend"),
    [
        *((number, backend) for backend in BACKENDS for number in (signal.SIGKILL, signal.SIGINT)),
        (signal.SIGTERM, "bwrap"),  # it ends by it as by SIGKILL
    ],
)
def test_nothing_outlives_a_killed_trainer(
    backend: str, number: signal.Signals, tmp_path: Path
) -> None:
    """Soon after there is no process, no zombie and no folder."""
    tmp_path.chmod(0o1777)
    process, pids = _hold(backend, tmp_path)
    assert len(alive(pids)) == len(pids) > 6
    process.send_signal(number)
    process.wait(10)

    assert _wait_until_gone(pids) == []
    assert list(tmp_path.iterdir()) == []


async def test_a_cancelled_opening_leaves_nothing() -> None:
    """Wherever the cancellation falls."""
    provider = bwrap_provider()
    before = {process.pid for process in descendants(os.getpid())}
    for delay_s in (0.0, 0.005, 0.02, 0.06):
        opening = asyncio.create_task(provider.open())
        await asyncio.sleep(delay_s)
        opening.cancel()
        await asyncio.gather(opening, return_exceptions=True)
    await provider.aclose()

    after = {process.pid for process in descendants(os.getpid())}
    assert after <= before


async def test_many_runs_leave_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Descriptors, processes and folders are as they were."""
    os.chmod(tmp_path, 0o1777)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    provider = bwrap_provider(warm=1)
    await (await provider.open()).close()
    await asyncio.sleep(0.3)
    fds = len(os.listdir("/proc/self/fd"))
    for _ in range(8):
        sandbox = await provider.open()
        await sandbox.run_cell("import subprocess\nsubprocess.Popen(['sleep', '60'])")
        await sandbox.close()
    await provider.aclose()

    assert len(os.listdir("/proc/self/fd")) <= fds
    assert os.listdir(tmp_path) == []
    assert "sleep" not in [name(process.pid) for process in descendants(os.getpid())]


def test_a_forked_child_does_not_keep_a_sandbox_alive(tmp_path: Path) -> None:
    """As workers of a data loader are: they inherit the socket that says the trainer lives."""
    launcher("bwrap")
    code = f"""
import asyncio, os, sys, time
sys.path.insert(0, {str(KIT.parent)!r})
from processes_kit import bwrap_provider, descendants

async def main():
    provider = bwrap_provider(warm=1)
    sandbox = await provider.open()
    await sandbox.run_cell("1")
    pids = [p.pid for p in descendants(os.getpid())]
    child = os.fork()
    if child == 0:
        time.sleep(20)
        os._exit(0)
    print(child, *pids, flush=True)
    os._exit(0)

asyncio.run(main())
"""
    child, *pids = _run_and_read(code)
    try:
        assert _wait_until_gone(pids) == []
    finally:
        os.kill(child, signal.SIGKILL)


def _run_and_read(code: str) -> list[int]:
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    line = process.stdout.readline()
    process.wait(10)
    process.stdout.close()
    return [int(word) for word in line.split()]
