"""Any number of trajectories, made, played and written one by one.

What is kept in memory does not grow with their number: names of what an earlier run played, the
first trajectories for people to look at, and sums.
"""

import asyncio
import itertools
import re
from collections.abc import Callable, Container, Coroutine, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from agentgym.deadlines import together
from agentgym.display import Tally
from agentgym.errors import ConfigError
from agentgym.rollout import Player, run_trajectory
from agentgym.rollout.background import LoopThread
from agentgym.rollout.sampler import Sampler
from agentgym.store import append, drop_trajectories, go_on_with
from agentgym.trajectory import RolloutOutput, RolloutRequest, to_jsonl

_NAME = re.compile(r"g(\d{1,18})-m(\d{1,18})")


class Placed(NamedTuple):
    """A request and its place among all."""

    position: int
    request: RolloutRequest


@dataclass(frozen=True)
class Plan:
    """What is to be played."""

    sampler: Sampler
    num_groups: int

    def requests(self, done: Container[str]) -> Iterator[Placed]:
        """In order, without those that are done; each is made when it is asked for."""
        for number in range(self.num_groups):
            for placed in self._group(number):
                if placed.request.request_id not in done:
                    yield placed

    def find(self, name: str) -> Placed | None:
        """The request of this name."""
        match = _NAME.fullmatch(name)
        if match is None or int(match[1]) >= self.num_groups:
            return None
        group = self._group(int(match[1]))
        return next((placed for placed in group if placed.request.request_id == name), None)

    def _group(self, number: int) -> Iterator[Placed]:
        requests = self.sampler.groups([number])
        return map(Placed, itertools.count(number * self.sampler.group_size), requests)


@dataclass
class Results:
    """What was played."""

    num_kept: int
    """How many trajectories are kept whole: the first ones, in order."""
    tally: Tally = field(default_factory=Tally)
    failure: str = ""
    """Name and error of a trajectory that failed; empty if none did."""
    _first: dict[int, RolloutOutput] = field(default_factory=dict)

    def add(self, position: int, output: RolloutOutput) -> None:
        """Take one; they may come in any order."""
        self.tally.add(output)
        if output.stop_reason.is_failure and not self.failure:
            self.failure = f"{output.request_id} ({output.error or output.stop_reason.value})"
        if position < self.num_kept:
            self._first[position] = output

    @property
    def first(self) -> list[RolloutOutput]:
        """Those that are kept, in order."""
        return [self._first[position] for position in sorted(self._first)]


def take_up(out: Path, plan: Plan, results: Results) -> set[str]:
    """Count the trajectories of an earlier run in `out`; their names.

    Those that failed are taken out of the file: they say nothing of the policy, and what they
    failed of may be over.

    Raises:
        ConfigError: the file holds something else.
        StorageError: it cannot be read or written.
    """
    done: set[str] = set()
    failed: set[str] = set()
    for output in go_on_with(out):
        placed = plan.find(output.request_id)
        if placed is None or output.request_id in done:
            continue
        _refuse_another_run(out, output, placed.request)
        if output.stop_reason.is_failure:
            failed.add(output.request_id)
        else:
            results.add(placed.position, output)
            done.add(output.request_id)
    if failed:
        drop_trajectories(out, lambda o: o.stop_reason.is_failure and o.request_id in failed)
    return done


def _refuse_another_run(out: Path, output: RolloutOutput, request: RolloutRequest) -> None:
    played = (output.env, output.task_id, output.seed)
    if played != (request.env, request.task.id, request.seed):
        raise ConfigError(
            f"{str(out)!r} holds other trajectories: its {output.request_id} is {output.env} "
            f"{output.task_id} with seed {output.seed}, this run's is {request.env} "
            f"{request.task.id} with seed {request.seed}; give another --out"
        )


def play(
    requests: Iterator[Placed], player: Player, out: Path | None, results: Results, num: int
) -> None:
    """Play with a progress bar; each trajectory is written as it ends.

    Args:
        requests: still to be played.
        player: plays them; the engine is closed in the end.
        out: file to append to.
        results: where they are counted.
        num: how many requests there are.
    """
    columns = (TextColumn("playing"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as progress:
        bar = progress.add_task("", total=num)

        async def work() -> None:
            for position, request in requests:
                output = await run_trajectory(request, player)
                if out is not None:
                    append(out, to_jsonl([output]))
                results.add(position, output)
                progress.advance(bar)

        loop = LoopThread()
        try:
            loop.run(_together(work, min(player.concurrency, num), player))
        finally:
            loop.close()


async def _together(
    work: Callable[[], Coroutine[Any, Any, None]], num: int, player: Player
) -> None:
    """So many workers, each of which takes the next request when it is free."""
    try:
        await together([asyncio.create_task(work()) for _ in range(num)])
    finally:
        await player.engine.aclose()
