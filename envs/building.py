"""Building an env off the event loop, so that one that comes too late does not stay open."""

import asyncio
import threading
from collections.abc import Callable

from agentgym.envs.base import Env
from agentgym.threads import in_thread


async def build(make_env: Callable[[], Env]) -> Env:
    """The env, built in a thread; if nobody waits for it any more, it is closed there."""
    building = _Building(make_env)
    try:
        return await in_thread(building.run)
    except asyncio.CancelledError:
        building.abandon()
        raise


class _Building:
    def __init__(self, make_env: Callable[[], Env]) -> None:
        self._make_env = make_env
        self._lock = threading.Lock()
        self._env: Env | None = None
        self._is_abandoned = False

    def run(self) -> Env:
        env = self._make_env()
        with self._lock:
            self._env = env
            is_abandoned = self._is_abandoned
        if is_abandoned:
            env.close()
        return env

    def abandon(self) -> None:
        with self._lock:
            self._is_abandoned = True
            env = self._env
        if env is not None:
            threading.Thread(target=env.close, daemon=True).start()
