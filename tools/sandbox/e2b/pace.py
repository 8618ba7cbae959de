"""How many machines this process may hold and how fast it may ask for more.

The service counts per account: so many machines at once, so many new ones a second. Waiting here
costs nothing; being refused there costs requests that count as well. It works across event loops,
since tools and rewards may run on different ones.
"""

import asyncio
import random
import threading
import time

from agentgym.deadlines import uncounted
from agentgym.errors import ConfigError

BASE_S, MOST_S = 0.5, 20.0


def backoff_s(attempt: int, rng: random.Random) -> float:
    """Seconds to wait before attempt 1, 2, ...: doubling, with jitter, bounded."""
    return min(MOST_S, BASE_S * 2.0**attempt) * (0.5 + rng.random() / 2)


class Rate:
    """So many a second, in even steps after a first burst.

    Args:
        per_second: how many, in the long run.
        burst: how many at once after a pause.

    Raises:
        ConfigError: it lets nothing through.
    """

    def __init__(self, per_second: float, burst: int = 1) -> None:
        if not per_second > 0:
            raise ConfigError(f"new sandboxes per second must be above 0, got {per_second}")
        self._step_s = 1.0 / per_second
        self._slack_s = self._step_s * (burst - 1)
        self._next = 0.0
        self._lock = threading.Lock()

    async def wait(self) -> None:
        """Until it is one's turn."""
        delay = self._reserve()
        if delay > 0:
            with uncounted():
                await asyncio.sleep(delay)

    def pause(self, seconds: float) -> None:
        """Nobody's turn comes before so many seconds have passed: the service asked for it."""
        with self._lock:
            self._next = max(self._next, time.monotonic() + seconds + self._slack_s)

    def _reserve(self) -> float:
        with self._lock:
            now = time.monotonic()
            mine = max(self._next, now)
            self._next = mine + self._step_s
            return mine - self._slack_s - now
