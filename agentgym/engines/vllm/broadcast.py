"""The trainer's end of a line: every bucket to all workers of all servers, over gloo or NCCL."""

import asyncio
import os
from collections.abc import Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from agentgym.engines.vllm.buffers import Entry, fill, lay_out
from agentgym.engines.vllm.line import ABSENT, LOST, Carrier, Line, Seat, meeting_place
from agentgym.engines.vllm.transfer import Post
from agentgym.engines.weights import Bucket
from agentgym.errors import EngineError, boundary
from agentgym.threads import Worker

if TYPE_CHECKING:
    import torch

_ANSWER_S = 1.0


class BroadcastSender:
    """Tells the servers about a bucket, and broadcasts it at the same time.

    Args:
        backend: name of the servers' end.
        carrier: what moves the bytes.
        workers: of each server.
        host: address of this process for the servers.
        timeout_s: for all workers to join, and for one bucket.
    """

    def __init__(
        self,
        backend: str,
        carrier: Carrier,
        *,
        workers: Sequence[int],
        host: str,
        timeout_s: float,
    ) -> None:
        self.backend = backend
        self._carrier = carrier
        self._workers = tuple(workers)
        with boundary(EngineError, f"cannot listen on {host} for the servers"):
            self._store = meeting_place(host, 0, is_host=True, timeout_s=timeout_s)
        self._seat = Seat(host=host, rank=0, world_size=1 + sum(workers), timeout_s=timeout_s)
        self._line = Line(self._store, self._seat, carrier)
        self._thread = Worker()
        self._joined: Future[None] | None = None

    def init_info(self, server: int = 0) -> dict[str, Any]:
        """Where to join; the first call begins to wait for all of them."""
        if self._joined is None:
            self._joined = self._thread.submit(self._line.join)
        return {
            "host": self._seat.host,
            "port": self._store.port,
            "world_size": self._seat.world_size,
            "rank_offset": 1 + sum(self._workers[:server]),
            "timeout_s": self._seat.timeout_s,
        }

    async def send(self, bucket: Bucket, post: Post) -> None:
        """Post and broadcast at the same time.

        Raises:
            ConfigError: this process cannot send this way.
            EngineError: a worker did not join, or not take the bucket, in time.
        """
        if self._joined is None:
            raise EngineError("no server has been told where to join: init_info() is first")
        with boundary(EngineError, ABSENT):
            await asyncio.wrap_future(self._joined)
        entries, num_bytes = lay_out(bucket)
        told = asyncio.ensure_future(post({"entries": entries, "num_bytes": num_bytes}))
        sent = asyncio.ensure_future(
            self._thread.run(lambda: self._broadcast(bucket, entries, num_bytes))
        )
        await both(told, sent)

    def close(self) -> None:
        """Leave; workers that wait for bytes fail within a second."""
        self._line.cut()
        self._thread.stop()

    def _broadcast(self, bucket: Bucket, entries: list[Entry], num_bytes: int) -> None:
        import torch

        device = gpu_of(bucket) if self._carrier.on_gpu else torch.device("cpu")
        buffer = torch.empty(num_bytes, dtype=torch.uint8, device=device)
        fill(buffer, bucket, entries)
        self._line.broadcast(buffer)


async def both(told: "asyncio.Future[None]", sent: "asyncio.Future[None]") -> None:
    """Wait for both, or for the first that fails; a failed answer says more than a cut stream."""
    try:
        await asyncio.wait((told, sent), return_when=asyncio.FIRST_EXCEPTION)
        if not told.done():
            await asyncio.wait((told,), timeout=_ANSWER_S)
        if told.done():
            told.result()
        with boundary(EngineError, LOST):
            sent.result()
    finally:
        told.cancel()
        sent.cancel()


def gpu_of(bucket: Bucket) -> "torch.device":
    """Where its tensors are, or this process' GPU for those in the host's memory.

    Which one that is only the main thread could ask CUDA; it is the one that Accelerate gives it.
    """
    import torch

    devices = (tensor.device for tensor in bucket.values() if tensor.is_cuda)
    rank = max(int(os.environ.get("LOCAL_RANK", "0")), 0)
    return next(devices, None) or torch.device("cuda", rank % torch.cuda.device_count())
