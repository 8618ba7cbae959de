"""The trainer's end of a weight transfer; needs no vLLM.

A `Sender` moves the bytes of a bucket; the caller posts what the servers are to be told about them:

    sender = sender_for("agentgym_shm")
    for number, url in enumerate(servers):  # at once: a backend may wait for all of them
        POST url/init_weight_transfer_engine {"init_info": sender.init_info(number)}
    POST */pause?mode=keep, */start_weight_update
    for bucket in weights.buckets():
        await sender.send(bucket, post)  # post(info): POST */update_weights {"update_info": info}
    POST */finish_weight_update {"weight_version": "7"}
    POST */reset_prefix_cache?reset_running_requests=true, */resume
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from agentgym.engines.weights import Bucket
from agentgym.errors import ConfigError

if TYPE_CHECKING:
    from agentgym.engines.vllm.line import Carrier

Post = Callable[[dict[str, Any]], Awaitable[None]]
"""Tells every server about a bucket; returns once all have taken it."""

SHM, GLOO, NCCL = "agentgym_shm", "agentgym_gloo", "agentgym_nccl"


class Sender(Protocol):
    """Moves buckets of tensors to servers."""

    @property
    def backend(self) -> str:
        """Name of the servers' transfer backend."""
        ...

    def init_info(self, server: int = 0) -> dict[str, Any]:
        """What a server, by its number, is told once."""
        ...

    async def send(self, bucket: Bucket, post: Post) -> None:
        """Move a bucket to every server; the bucket is free again when it returns.

        After a failure close the sender and take a new one.

        Raises:
            EngineError: the bytes did not get through; what `post` raises passes unchanged.
        """
        ...

    def close(self) -> None:
        """Free what the transfer holds; idempotent."""
        ...


def sender_for(
    backend: str,
    *,
    workers: Sequence[int] = (1,),
    host: str = "127.0.0.1",
    timeout_s: float = 300.0,
) -> Sender:
    """The sender that goes with the servers' backend.

    Args:
        backend: `agentgym_shm` (servers of this machine), `agentgym_gloo` or `agentgym_nccl`.
        workers: of each server, as its `/get_world_size` says.
        host: address of this process for the servers; for gloo and NCCL.
        timeout_s: for all servers to join, and for one bucket; for gloo and NCCL.

    Raises:
        ConfigError: no such backend, or NCCL without a GPU.
        EngineError: this process cannot listen on `host`.
    """
    carrier: Carrier
    match backend:
        case "agentgym_shm":
            from agentgym.engines.vllm.shm import ShmSender

            return ShmSender()
        case "agentgym_gloo":
            from agentgym.engines.vllm.gloo import GlooCarrier

            carrier = GlooCarrier()
        case "agentgym_nccl":
            from agentgym.engines.vllm.nccl import NcclCarrier, refuse_without_gpu

            refuse_without_gpu()
            carrier = NcclCarrier()
        case _:
            raise ConfigError(
                f"no transfer backend {backend!r}; there are {SHM}, {GLOO} and {NCCL}"
            )
    from agentgym.engines.vllm.broadcast import BroadcastSender

    return BroadcastSender(backend, carrier, workers=workers, host=host, timeout_s=timeout_s)
