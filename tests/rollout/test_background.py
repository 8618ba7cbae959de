"""An event loop for a caller that is not async, and nothing of it is left."""

import asyncio
import os
import signal
import threading
from typing import Any

import pytest

from agentgym.engines.scripted import CallableEngine
from agentgym.envs import Env
from agentgym.rendering import renderer_for
from agentgym.rollout import GymScheduler, Player, collect
from agentgym.rollout.background import LoopThread
from agentgym.testing import byte_tokenizer
from agentgym.trajectory import RolloutRequest, Task


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


def test_an_interrupt_lets_every_env_close():
    """Cancelled once: a second time would cut the closings that take longer than the first."""
    stepping, closed = threading.Semaphore(0), []

    class Slow(Env):
        async def areset(self, *, seed: Any = None, options: Any = None) -> Any:
            self.number = self.pick_task(options)["number"]
            return "hi", {}

        async def astep(self, action: Any) -> Any:
            stepping.release()
            await asyncio.sleep(60)

        async def aclose(self) -> None:
            await asyncio.sleep(0.1 + 0.05 * self.number)
            closed.append(self.number)

    def interrupt() -> None:
        for _ in range(4):
            stepping.acquire(timeout=30)
        os.kill(os.getpid(), signal.SIGINT)

    requests = [
        RolloutRequest(
            request_id=f"g{number}",
            group_id=f"g{number}",
            env="slow",
            task=Task(id="t", data={"number": number}),
            seed=0,
            sampling_seed=0,
        )
        for number in range(4)
    ]
    player = Player(
        engine=CallableEngine(lambda call: [65, 10]),
        renderer=renderer_for(byte_tokenizer(), stop_token_ids=[10]),
        scheduler=GymScheduler(Slow),
    )
    loop = LoopThread()
    threading.Thread(target=interrupt, daemon=True).start()
    try:
        with pytest.raises(KeyboardInterrupt):
            loop.run(collect(requests, player))
        assert closed == [0, 1, 2, 3]
    finally:
        loop.close()


def test_an_exit_inside_does_not_end_the_loop():
    """The next call would wait for ever on a thread that is gone."""

    async def leaves() -> None:
        raise SystemExit(3)

    loop = LoopThread()
    try:
        with pytest.raises(RuntimeError, match="SystemExit on the event loop: 3"):
            loop.run(leaves())
        assert loop.run(asyncio.sleep(0, "alive")) == "alive"
    finally:
        loop.close()
