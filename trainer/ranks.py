"""What the processes of a run tell each other, always by count and by object, never by position.

Every call here is collective: all ranks make it, in the same order. None is made while an env is
played, and control flow only ever depends on what every rank has been told.
"""

import itertools
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, TypeVar

import torch.distributed as dist
from accelerate import Accelerator
from accelerate.utils import gather_object

from agentgym.engines.weights import WeightsLostError
from agentgym.errors import AgentGymError, EpisodeError, OutageError, UsageError, WrongServerError
from agentgym.trainer.peers import is_gone, own_sign

T = TypeVar("T")

PATIENCE = timedelta(days=7)
"""How long a rank waits for the others' envs; the episode timeout is what bounds it."""
_SHORTEST_S, _LONGEST_S = 0.001, 0.5
"""From one look for the others to the next."""
_SHARE = 0.05
"""Of the time they were waited for: how much later than need be it may end."""

_QUIET_S = 1.0
"""Before it is asked whether those that are waited for still live."""

_meetings = itertools.count(1)
"""Of this process, whatever was trained before: what was told last is still in the store."""


class ProcessGoneError(OutageError):
    """Another process has ended without a word: nothing that takes all of them can be done."""


class Ranks:
    """The processes of this run."""

    def __init__(self, accelerator: Accelerator) -> None:
        self.index: int = accelerator.process_index
        self.count: int = accelerator.num_processes
        self._signs: dict[int, str] = {}
        """Of other processes, as they told them."""
        if self.count > 1:
            _store().set(_sign_name(self.index), own_sign())

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
        runs. A rank that is interrupted says so and does not wait.

        Raises:
            UsageError: or an `EpisodeError`, or whatever was raised here; of the same kind where
                it was raised on another rank.
            ProcessGoneError: another process of this machine has ended without a word.
        """
        if self.count == 1:
            return work()
        meeting = next(_meetings)
        try:
            result = work()
        except BaseException as error:
            self._tell(meeting, f"{_kind(error)} rank {self.index}: {_message(error)}")
            if isinstance(error, Exception):
                self._hear(meeting)
            raise
        self._tell(meeting, "")
        for told in filter(None, self._hear(meeting)):
            kind, message = told.split(" ", 1)
            raise _KINDS[kind](message)
        return result

    def _tell(self, meeting: int, outcome: str) -> None:
        _store().set(f"agentgym/{meeting}/{self.index}", outcome)

    def _hear(self, meeting: int) -> list[str]:
        """What every rank told at a meeting, once all of them have.

        Then all have heard what was told at the one before, and this rank's part of it can go.
        """
        names = [f"agentgym/{meeting}/{rank}" for rank in range(self.count)]
        self._wait_for(names)
        _store().delete_key(f"agentgym/{meeting - 1}/{self.index}")
        return [_store().get(name).decode() for name in names]

    def _wait_for(self, names: list[str]) -> None:
        """Until all of them, one of each rank, are in the store.

        Looking hears signals, which the store's own wait does not; that, in steps, prints warnings.
        """
        began = time.monotonic()
        while not _store().check(names):
            waited_s = time.monotonic() - began
            if waited_s > PATIENCE.total_seconds():
                raise OutageError(f"some process was not heard of within {PATIENCE.days} days")
            if waited_s > _QUIET_S:
                self._refuse_gone(names)
            time.sleep(min(max(_SHARE * waited_s, _SHORTEST_S), _LONGEST_S))

    def _refuse_gone(self, names: list[str]) -> None:
        """Raise a `ProcessGoneError` if one that has told nothing never will."""
        for rank, name in enumerate(names):
            if is_gone(self._sign_of(rank)) and not _store().check([name]):
                raise ProcessGoneError(
                    f"process {rank} of this run has ended without a word, as one does that is "
                    "killed where memory runs out"
                )

    def _sign_of(self, rank: int) -> str:
        name = _sign_name(rank)
        if rank not in self._signs and _store().check([name]):
            self._signs[rank] = _store().get(name).decode()
        return self._signs.get(rank, "")


def _sign_name(rank: int) -> str:
    return f"agentgym/sign/{rank}"


def _store() -> Any:
    return dist.distributed_c10d._get_default_store()


_KINDS: dict[str, type[BaseException]] = {
    kind.__name__: kind
    for kind in (
        WrongServerError,
        UsageError,
        EpisodeError,
        WeightsLostError,
        OutageError,
        KeyboardInterrupt,
        AgentGymError,
    )
}
"""What an error becomes on the other ranks: who must act stays the same."""


def _kind(error: BaseException) -> str:
    kinds = (name for name, kind in _KINDS.items() if isinstance(error, kind))
    return next(kinds, AgentGymError.__name__)


def _message(error: BaseException) -> str:
    return str(error) if isinstance(error, AgentGymError) else f"{type(error).__name__}: {error}"
