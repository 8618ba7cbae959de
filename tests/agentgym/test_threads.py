"""Threads beside event loops: results, errors, and a process that can always exit."""

import asyncio
import copy
import os
import subprocess
import sys
import threading
import time

import pytest

from agentgym.threads import Worker, in_thread, run_coroutine


def _raise(error: BaseException) -> None:
    raise error


async def test_in_thread_returns_and_raises() -> None:
    """Both outcomes reach the one who waits."""
    assert await in_thread(lambda: threading.current_thread().daemon) is True
    with pytest.raises(KeyError):
        await in_thread(lambda: _raise(KeyError("x")))
    with pytest.raises(RuntimeError, match="StopIteration"):
        await in_thread(lambda: _raise(StopIteration()))


async def test_a_worker_runs_its_calls_in_one_thread_in_order() -> None:
    """Connections bound to a thread, such as SQLite's, must survive from reset to close."""
    worker = Worker()
    seen: list[int] = []
    calls = [worker.run(lambda i=i: seen.append(i) or threading.get_ident()) for i in range(20)]
    threads = await asyncio.gather(*calls)
    last = await worker.run_last(threading.get_ident)

    assert seen == list(range(20))
    assert {*threads, last} == {threads[0]}
    assert threads[0] != threading.get_ident()


async def test_a_cancelled_call_that_has_not_begun_never_runs() -> None:
    """A step nobody waits for any more must not happen after the episode is over."""
    worker = Worker()
    release = threading.Event()
    seen: list[str] = []
    first = asyncio.create_task(worker.run(release.wait))
    second = asyncio.create_task(worker.run(lambda: seen.append("second")))
    await asyncio.sleep(0.01)
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)
    release.set()
    await first
    await worker.run_last(lambda: None)

    assert seen == []


async def test_the_last_call_runs_though_nobody_waits() -> None:
    """Whatever an env holds is freed even if closing it took too long."""
    worker = Worker()
    release, closed = threading.Event(), threading.Event()
    step = asyncio.create_task(worker.run(release.wait))
    await asyncio.sleep(0.01)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(worker.run_last(closed.set), 0.01)
    release.set()
    await step

    assert await asyncio.to_thread(closed.wait, 5)


async def test_threads_end_with_their_worker() -> None:
    """Thousands of envs that nobody closed must not leave thousands of threads."""
    worker = Worker()
    thread = await worker.run(threading.current_thread)
    del worker

    await asyncio.to_thread(thread.join, 5)
    assert not thread.is_alive()


def test_run_coroutine_serves_sync_callers() -> None:
    """One loop for all, so that what one call opens the next can use."""

    async def loop_id() -> int:
        await asyncio.sleep(0)
        return id(asyncio.get_running_loop())

    async def fail() -> None:
        raise SystemExit(3)

    assert run_coroutine(loop_id()) == run_coroutine(loop_id())
    with pytest.raises(SystemExit):
        run_coroutine(fail())
    assert run_coroutine(loop_id())


async def test_run_coroutine_works_inside_a_running_loop() -> None:
    """A notebook runs every cell inside a loop."""

    async def seven() -> int:
        return 7

    assert run_coroutine(seven()) == 7


def test_waiting_for_the_own_loop_is_refused() -> None:
    """It would wait for ever."""

    async def seven() -> int:
        return 7

    async def nested() -> int:
        return run_coroutine(seven())

    with pytest.raises(RuntimeError, match="await the async one"):
        run_coroutine(nested())


def test_a_process_exits_while_calls_hang() -> None:
    """A tool that never returns must not keep a finished run from exiting."""
    code = (
        "import asyncio, threading\n"
        "from agentgym.threads import Worker, in_thread\n"
        "async def main():\n"
        "    for hang in (in_thread, Worker().run):\n"
        "        try: await asyncio.wait_for(hang(threading.Event().wait), 0.05)\n"
        "        except TimeoutError: print('timeout')\n"
        "asyncio.run(main())\n"
    )
    start = time.monotonic()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=20)

    assert done.stdout.split() == ["timeout", "timeout"], done.stderr
    assert time.monotonic() - start < 15


async def test_threads_are_used_again() -> None:
    """Starting one costs more than most calls; one that is still busy is nobody else's."""
    release = threading.Event()
    first = await in_thread(threading.get_ident)
    assert await in_thread(threading.get_ident) == first
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(in_thread(release.wait), 0.01)
    assert await in_thread(lambda: "runs") == "runs"
    release.set()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
def test_a_forked_child_has_threads_of_its_own() -> None:
    """Vector envs fork; a child that waited for its parent's threads would hang."""
    code = (
        "import asyncio, os, threading\n"
        "from agentgym.threads import Worker, in_thread, run_coroutine\n"
        "worker = Worker()\n"
        "async def use():\n"
        "    return await in_thread(int) + await worker.run(int)\n"
        "asyncio.run(use()), run_coroutine(use())\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    os._exit(7 + asyncio.run(use()) + run_coroutine(use()))\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=20)

    assert done.stdout == "7\n", done.stderr


async def test_a_copied_worker_has_a_thread_of_its_own() -> None:
    """Envs are copied in the middle of an episode, worker included."""
    worker = Worker()
    first = await worker.run(threading.get_ident)
    copied = copy.deepcopy(worker)

    assert await copied.run(threading.get_ident) != first
    worker.stop()
    copied.stop()
