"""What the processes of a run tell each other, always by count and by object, never by position.

Every call here is collective: all ranks make it, in the same order. None is made while an env is
played, and control flow only ever depends on what every rank has been told.
"""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TypeVar

import torch.distributed as dist
from accelerate import Accelerator
from accelerate.utils import gather_object

from agentgym.errors import AgentGymError, UsageError

T = TypeVar("T")

PATIENCE = timedelta(days=7)
"""How long a rank waits for the others' envs; the episode timeout is what bounds it."""


class Ranks:
    """The processes of this run."""

    def __init__(self, accelerator: Accelerator) -> None:
        self.index: int = accelerator.process_index
        self.count: int = accelerator.num_processes
        self._meetings = 0

    def gather(self, value: T) -> list[T]:
        """[ranks] the value of every rank, on every rank."""
        if self.count == 1:
            return [value]
        gathered: list[T] = gather_object([value])
        return gathered

    def gather_all(self, values: Sequence[T]) -> list[T]:
        """The values of every rank in one list, rank after rank, on every rank."""
        return [value for theirs in self.gather(list(values)) for value in theirs]

    def own(self, values: Sequence[T]) -> list[T]:
        """This rank's part of what `gather_all` gave, if every rank gave equally many."""
        size = len(values) // self.count
        return list(values[self.index * size : (self.index + 1) * size])

    def share(self, values: Sequence[T], size: int) -> list[T]:
        """This rank's chunks of `size` values, dealt in turn."""
        chunks = [values[start : start + size] for start in range(0, len(values), size)]
        return [value for chunk in chunks[self.index :: self.count] for value in chunk]

    def together(self, work: Callable[[], T]) -> T:
        """Do rank-local work of any length; if it fails on one rank, it fails on all of them.

        The wait for the slowest rank is on the rendezvous store, where no collective's timeout
        runs.
        """
        if self.count == 1:
            return work()
        failure: AgentGymError | None = None
        try:
            result = work()
        except AgentGymError as error:
            failure = error
        self._meet()
        errors = self.gather(None if failure is None else f"rank {self.index}: {failure}")
        if failure is not None:
            raise failure
        elsewhere = [error for error in errors if error is not None]
        if elsewhere:
            raise UsageError(elsewhere[0])
        return result

    def _meet(self) -> None:
        store = dist.distributed_c10d._get_default_store()
        self._meetings += 1
        names = [f"agentgym/{self._meetings}/{rank}" for rank in range(self.count)]
        store.set(names[self.index], "here")
        store.wait(names, PATIENCE)
