"""An event loop for a caller that is not async, and nothing of it is left."""

import asyncio
import threading

import pytest

from agentgym.trainer.background import LoopThread


def threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "agentgym-loop"}


async def fails() -> None:
    raise LookupError("inside")


def test_results_and_errors_come_back_to_the_caller():
    """As if the coroutine had been an ordinary function."""
    loop = LoopThread()
    try:
        assert loop.run(asyncio.sleep(0, "done")) == "done"
        with pytest.raises(LookupError, match="inside"):
            loop.run(fails())
    finally:
        loop.close()


def test_closing_cancels_what_is_left_and_lets_it_clean_up():
    """A task that somebody forgot must not keep an env open."""
    before, cleaned = threads(), threading.Event()

    async def forgotten() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            cleaned.set()

    async def start() -> None:
        asyncio.get_running_loop().forgotten = asyncio.create_task(forgotten())  # type: ignore[attr-defined]
        await asyncio.sleep(0)

    loop = LoopThread()
    loop.run(start())
    loop.close()
    loop.close()
    assert cleaned.is_set()
    assert threads() == before
