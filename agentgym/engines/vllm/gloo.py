"""Weights over TCP, to servers anywhere.

Trainer and workers form a group of their own, over a store of their own: the trainer's default
group, if it has one, is neither needed nor touched.
"""

import asyncio
from collections.abc import Sequence
from concurrent.futures import Future
from datetime import timedelta
from typing import Any

from agentgym.engines.vllm.buffers import fill, lay_out
from agentgym.engines.vllm.transfer import GLOO, Post
from agentgym.engines.weights import Bucket
from agentgym.errors import EngineError, boundary
from agentgym.threads import Worker

_LOOPBACK = ("127.0.0.1", "localhost", "::1")


class GlooSender:
    """Broadcasts every bucket to all workers.

    Args:
        workers: of each server.
        host: address of this process for the servers.
        timeout_s: for all workers to join, and for one bucket.
    """

    backend = GLOO

    def __init__(self, workers: Sequence[int], *, host: str, timeout_s: float) -> None:
        self._workers = tuple(workers)
        self._host = host
        self._timeout = timedelta(seconds=timeout_s)
        with boundary(EngineError, f"cannot listen on {host} for the servers"):
            self._store = meeting_place(host, 0, is_host=True, timeout=self._timeout)
        self._thread = Worker()
        self._group: Future[Any] | None = None

    def init_info(self, server: int = 0) -> dict[str, Any]:
        """Where to join; the first call begins to wait for all of them."""
        world_size = 1 + sum(self._workers)
        if self._group is None:
            self._group = self._thread.submit(
                lambda: gloo_group(
                    self._store, 0, world_size, host=self._host, timeout=self._timeout
                )
            )
        return {
            "host": self._host,
            "port": self._store.port,
            "world_size": world_size,
            "rank_offset": 1 + sum(self._workers[:server]),
            "timeout_s": self._timeout.total_seconds(),
        }

    async def send(self, bucket: Bucket, post: Post) -> None:
        """Post and broadcast at the same time.

        Raises:
            EngineError: a worker did not join, or not take the bucket, in time.
        """
        if self._group is None:
            raise EngineError("no server has been told where to join: init_info() is first")
        with boundary(EngineError, "the servers did not join the transfer"):
            group = await asyncio.wrap_future(self._group)
        entries, num_bytes = lay_out(bucket)
        told = asyncio.ensure_future(post({"entries": entries, "num_bytes": num_bytes}))
        sent = asyncio.ensure_future(
            self._thread.run(lambda: _broadcast(group, num_bytes, bucket, entries))
        )
        await both(told, sent)

    def close(self) -> None:
        """Leave the group; a worker that waits for bytes fails at once."""
        group, self._group = self._group, None
        if group is not None and group.done() and group.exception() is None:
            group.result().abort()
        self._thread.stop()


async def both(told: "asyncio.Future[None]", sent: "asyncio.Future[None]") -> None:
    """Wait for both, or for the first that fails; a failed answer says more than a cut stream."""
    try:
        await asyncio.wait((told, sent), return_when=asyncio.FIRST_EXCEPTION)
        if not told.done():
            await asyncio.wait((told,), timeout=1.0)
        if told.done():
            told.result()
        with boundary(EngineError, "weights did not get through to the servers"):
            sent.result()
    finally:
        told.cancel()
        sent.cancel()


def _broadcast(group: Any, num_bytes: int, bucket: Bucket, entries: Any) -> None:
    import torch

    buffer = torch.empty(num_bytes, dtype=torch.uint8)
    fill(buffer, bucket, entries)
    group.broadcast(buffer, 0).wait()


def meeting_place(host: str, port: int, *, is_host: bool, timeout: timedelta) -> Any:
    """A `TCPStore`, where the members of a group find each other.

    Args:
        host: of the trainer.
        port: 0 = any that is free.
        is_host: the trainer is; does not wait for anybody.
        timeout: for reaching it.
    """
    from torch import distributed

    store: Any = vars(distributed)["TCPStore"]
    return store(host, port, None, is_host, timeout, False)


def gloo_group(store: Any, rank: int, world_size: int, *, host: str, timeout: timedelta) -> Any:
    """A `ProcessGroupGloo` with the others, once all have come.

    Args:
        store: a `meeting_place`.
        rank: 0 is the trainer.
        world_size: members.
        host: of the trainer; decides the network interface.
        timeout: for joining and for every transfer.
    """
    from torch import distributed

    gloo: Any = distributed.ProcessGroupGloo
    options = gloo._Options()
    options._timeout = timeout
    is_local = host in _LOOPBACK
    device = gloo.create_device(hostname=host) if is_local else gloo.create_default_device()
    options._devices = [device]
    return gloo(store, rank, world_size, options)
