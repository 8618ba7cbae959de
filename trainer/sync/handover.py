"""Buckets from the thread that gathers them to the event loop that delivers them.

Neither side can leave the other waiting: a gather that fails ends the delivery, and a delivery that
fails lets the gather run to its end, which the other ranks take part in. A bucket is gathered while
the one before it is delivered, and no further one.
"""

import queue
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Literal

from agentgym.engines.weights import Bucket, TensorSpec
from agentgym.errors import EngineError
from agentgym.rollout.background import Running
from agentgym.trainer.sync.gather import Contents

_LOOK_S = 0.05


class HandedOver:
    """See `agentgym.engines.weights.Weights`.

    Args:
        contents: what will come.
        version: the policy version afterwards.
        ends: by `time.perf_counter()`, when nobody waits for the engine any more.
    """

    def __init__(self, contents: Contents, version: int, *, ends: float) -> None:
        self._ends = ends
        self.kind: Literal["full", "lora"] = contents.kind
        self.specs: Mapping[str, TensorSpec] = contents.specs
        self.lora_config = contents.lora_config
        self.version = version
        self._queue: queue.Queue[Bucket | BaseException | None] = queue.Queue(maxsize=1)
        self._taken = threading.Event()

    def buckets(self) -> Iterator[Bucket]:
        """Everything that is put in, until the end.

        Raises:
            EngineError: not everything could be gathered, or not in time.
        """
        while (item := self._next()) is not None:
            if isinstance(item, BaseException):
                raise EngineError(f"the weights were not gathered: {item}") from item
            yield item

    def _next(self) -> Bucket | BaseException | None:
        try:
            item = self._queue.get(timeout=max(self._ends - time.perf_counter(), 0.0))
        except queue.Empty:
            raise EngineError("the weights were not gathered in time (sync_timeout_s)") from None
        self._taken.set()
        return item

    def feed(self, buckets: Iterable[Bucket], delivery: Running[Any]) -> None:
        """Put all buckets in; those that nobody will take are gathered and dropped."""
        try:
            for bucket in buckets:
                self._put(bucket, delivery)
            self._put(None, delivery)
        except BaseException as error:
            self._end_with(error)
            raise

    def _put(self, item: Bucket | BaseException | None, delivery: Running[Any]) -> None:
        """Until it is taken, or nobody will take it any more."""
        if delivery.is_over or time.perf_counter() >= self._ends:
            return
        self._taken.clear()
        self._queue.put_nowait(item)
        while not delivery.is_over and time.perf_counter() < self._ends:
            if self._taken.wait(_LOOK_S):
                return

    def _end_with(self, error: BaseException) -> None:
        """In place of a bucket that was waited with when an interrupt came."""
        with suppress(queue.Empty):
            self._queue.get_nowait()
        self._queue.put_nowait(error)
