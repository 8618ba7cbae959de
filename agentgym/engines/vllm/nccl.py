"""Weights from GPU to GPU, over vLLM's own NCCL transfer. Written by reading; not run on a GPU.

The server's end is vLLM's own too, which loads as it receives: an update that fails half-way leaves
a server that must be restarted.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from agentgym.engines.vllm.transfer import NCCL, Post
from agentgym.engines.weights import Bucket
from agentgym.errors import EngineError, MissingExtraError, boundary
from agentgym.threads import Worker

_BUFFER_BYTES = 1 << 28


class NcclSender:
    """Rank 0 of a group with all workers; computes on the current CUDA device.

    Args:
        workers: of each server.
        host: address of this process for the servers.
    """

    backend = NCCL

    def __init__(self, workers: Sequence[int], *, host: str) -> None:
        try:
            import vllm.distributed.weight_transfer.nccl_common  # noqa: F401
        except ImportError as error:
            raise MissingExtraError("sending weights over NCCL", "vllm") from error
        from agentgym.engines.vllm.ports import free_port

        self._workers = tuple(workers)
        self._meeting = {
            "master_address": host,
            "master_port": free_port(host),
            "world_size": 1 + sum(workers),
        }
        self._thread = Worker()
        self._group: Any = None

    def init_info(self, server: int = 0) -> dict[str, Any]:
        """Where to join; the first call begins to wait for all workers."""
        if self._group is None:
            from vllm.distributed.weight_transfer.nccl_common import trainer_init

            self._group = self._thread.submit(lambda: trainer_init(self._meeting))
        return {
            **self._meeting,
            "rank_offset": 1 + sum(self._workers[:server]),
            "packed": True,
            "packed_buffer_size_bytes": _BUFFER_BYTES,
        }

    async def send(self, bucket: Bucket, post: Post) -> None:
        """Post and broadcast at the same time.

        Raises:
            EngineError: a worker did not join, or not take the bucket.
        """
        from agentgym.engines.vllm.gloo import both

        if self._group is None:
            raise EngineError("no server has been told where to join: init_info() is first")
        with boundary(EngineError, "the servers did not join the transfer"):
            group = await asyncio.wrap_future(self._group)
        info = {
            "names": list(bucket),
            "dtype_names": [str(t.dtype).removeprefix("torch.") for t in bucket.values()],
            "shapes": [list(t.shape) for t in bucket.values()],
        }
        told = asyncio.ensure_future(post(info))
        await both(told, asyncio.ensure_future(self._thread.run(lambda: _broadcast(group, bucket))))

    def close(self) -> None:
        """Leave the group."""
        group, self._group = self._group, None
        if group is not None and group.done() and group.exception() is None:
            group.result().destroy()
        self._thread.stop()


def _broadcast(group: Any, bucket: Bucket) -> None:
    import torch
    from vllm.distributed.weight_transfer.packed_tensor import packed_nccl_broadcast_producer

    packed_nccl_broadcast_producer(
        iterator=iter(bucket.items()),
        group=group,
        src=0,
        post_iter_func=lambda item: item[1].detach().cuda(),
        buffer_size_bytes=_BUFFER_BYTES,
    )
    torch.cuda.current_stream().synchronize()
