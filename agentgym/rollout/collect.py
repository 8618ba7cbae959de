"""Many trajectories at once, none of which can touch another.

A failed trajectory is a record like the others; the run stops only if too many failed. Errors of
the caller and outages cancel what is in flight, and every episode is closed before they leave.
"""

import asyncio
from collections.abc import Sequence

from agentgym.deadlines import together
from agentgym.errors import EpisodeError
from agentgym.rollout.play import run_trajectory
from agentgym.rollout.player import Player, failure_summary
from agentgym.trajectory import RolloutOutput, RolloutRequest


class TooManyFailuresError(EpisodeError):
    """More of a batch failed than the player tolerates; the batch says nothing of the policy."""

    def __init__(self, outputs: Sequence[RolloutOutput]) -> None:
        super().__init__(failure_summary(outputs))
        self.outputs = tuple(outputs)


async def collect(
    requests: Sequence[RolloutRequest], player: Player, *, slots: asyncio.Semaphore | None = None
) -> list[RolloutOutput]:
    """Play all requests, at most `player.concurrency` at a time; outputs in their order.

    Args:
        requests: what to play.
        player: how.
        slots: places that are shared with what else is played, instead of the player's own.

    Raises:
        TooManyFailuresError: more than `player.max_failed_fraction` failed.
        OutageError: what all of them need is gone.
        UsageError: the caller must change something.
    """
    places = slots if slots is not None else asyncio.Semaphore(player.concurrency)

    async def play(request: RolloutRequest) -> RolloutOutput:
        async with places:
            output = await run_trajectory(request, player)
        if player.on_output is not None:
            player.on_output(output)
        return output

    outputs = await together([asyncio.create_task(play(request)) for request in requests])
    num_failed = sum(output.stop_reason.is_failure for output in outputs)
    if num_failed > player.max_failed_fraction * len(outputs):
        raise TooManyFailuresError(outputs)
    return outputs
