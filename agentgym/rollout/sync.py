"""Rollouts for callers that are not async: scripts, and notebooks whose own loop already runs.

Everything is played on a loop in a thread of its own, so there is no loop around the caller that it
could collide with; the caller waits, and so does the caller's loop if it has one.
"""

from collections.abc import Sequence

from agentgym.rollout.background import LoopThread
from agentgym.rollout.collect import collect
from agentgym.rollout.player import Player
from agentgym.trajectory import RolloutOutput, RolloutRequest


def collect_sync(requests: Sequence[RolloutRequest], player: Player) -> list[RolloutOutput]:
    """`collect` without `await`; from async code, await that one: this one holds up the loop.

    Raises:
        TooManyFailuresError: more than `player.max_failed_fraction` failed.
        UsageError: the caller must change something.
    """
    loop = LoopThread()
    try:
        return loop.run(collect(requests, player))
    finally:
        loop.close()
