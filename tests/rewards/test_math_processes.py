"""The grader's processes: deadlines, threads, forks, and that none outlives its user."""

import asyncio
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from agentgym.envs.maths.grading.pool import POOL, Pool
from agentgym.rewards.math import grade

HOPELESS = r"\boxed{\int_0^{\infty} e^{-x^{x^x}} dx}"
"""What no algebra system finishes in time."""


def test_algebra_ends_at_its_deadline_and_works_afterwards() -> None:
    """The process that hangs is killed and replaced."""
    assert grade("2x", r"\boxed{x+x}")
    start = time.perf_counter()

    assert not grade("x", HOPELESS, seconds=0.5)
    assert time.perf_counter() - start < 4
    assert grade("2x", r"\boxed{x+x}")


def test_it_works_in_any_thread_and_event_loop() -> None:
    """No signals: those work in the main thread only."""

    async def in_loop() -> bool:
        return grade("3x", "x+2x")

    with ThreadPoolExecutor(4) as threads:
        in_threads = list(threads.map(lambda n: grade(f"{n}x", f"x+{n - 1}x"), range(2, 10)))
        in_loops = list(threads.map(lambda _: asyncio.run(in_loop()), range(2)))

    assert all(in_threads)
    assert all(in_loops)
    assert len(POOL.pids()) <= 2


def test_a_forked_child_has_processes_of_its_own() -> None:
    """Two users of one pipe would read each other's answers."""
    assert grade("2x", "x+x")
    child = os.fork()
    if child == 0:
        os._exit(0 if grade("3x", "x+2x") and not grade("3x", "x+x") else 1)

    assert os.waitpid(child, 0)[1] == 0
    assert grade("4x", "2x+2x")


@pytest.mark.slow
def test_no_process_outlives_the_pool() -> None:
    """Neither a closed pool nor the end of the interpreter leaves one behind."""
    pool = Pool(1)
    assert pool.same("2x", "x+x", tolerance=0.0, seconds=5)
    (pid,) = pool.pids()
    pool.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)

    code = (
        "from agentgym.envs.maths.grading import grade; from agentgym.envs.maths.grading.pool "
        "import POOL; assert grade('2x', 'x+x'); print(*POOL.pids())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    with pytest.raises(ProcessLookupError):
        os.kill(int(done.stdout), 0)


@pytest.mark.slow
def test_a_killed_caller_leaves_no_process() -> None:
    """Nobody is there to close anything then: the closed pipe does it."""
    code = (
        "import os, signal; from agentgym.envs.maths.grading import grade; "
        "from agentgym.envs.maths.grading.pool import POOL; grade('2x', 'x+x'); "
        "print(*POOL.pids(), flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)

    assert _is_gone_within(10, int(done.stdout))


def _is_gone_within(seconds: float, pid: int) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            with open(f"/proc/{pid}/stat") as stat:
                if stat.read().rpartition(")")[2].split()[0] == "Z":
                    return True
        except FileNotFoundError:
            return True
        threading.Event().wait(0.05)
    return False
