"""The receiving end of a weight transfer, inside vLLM's worker.

vLLM 0.32 takes a model apart when an update starts, so one that fails leaves an engine that dies at
its next step. These only stage what arrives, and swap it in when the update is finished.
"""

import mmap
import os
from abc import abstractmethod
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar

import torch
from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)

from agentgym.engines.vllm.buffers import Entry, views
from agentgym.engines.vllm.gloo import gloo_group, meeting_place
from agentgym.engines.vllm.loading import ServedModel, served_model
from agentgym.engines.vllm.refusals import Loaded
from agentgym.engines.vllm.staged import Staging
from agentgym.engines.vllm.transfer import GLOO, SHM


@dataclass
class NoInit(WeightTransferInitInfo):  # type: ignore[misc]
    """A backend without a connection."""


@dataclass
class GlooInit(WeightTransferInitInfo):  # type: ignore[misc]
    """Where the trainer waits."""

    host: str
    port: int
    world_size: int
    """The trainer and all workers."""
    rank_offset: int
    """Rank of this server's first worker; the trainer is 0."""
    timeout_s: float


@dataclass
class BufferUpdate(WeightTransferUpdateInfo):  # type: ignore[misc]
    """One bucket in one run of bytes."""

    entries: list[Entry]
    num_bytes: int
    path: str = ""
    """Of the file that holds it, if a file does."""


class StagedEngine(WeightTransferEngine):  # type: ignore[misc]
    """Collects an update and swaps it in at its end."""

    init_info_cls: ClassVar[type] = NoInit
    update_info_cls: ClassVar[type] = BufferUpdate

    last = Loaded(0, 0)
    """The last update that was finished."""
    _staging: Staging | None = None

    def init_transfer_engine(self, init_info: Any) -> None:
        """Nothing to connect."""

    def start_weight_update(self) -> None:
        """Drop what an earlier update left."""
        self._staging = self._served().staging()

    def update_weights(self, update_info: dict[str, Any]) -> None:
        """Stage a bucket.

        Raises:
            WeightsRefusedError: it is not the model's.
        """
        self.receive_weights(self.parse_update_info(update_info))

    def receive_weights(self, update_info: BufferUpdate) -> None:
        """Stage a bucket; the whole update is dropped if that fails."""
        staging = self._take()
        buffer = self.receive(update_info)
        staging.add(views(buffer, update_info.entries).items())
        self._staging = staging

    @abstractmethod
    def receive(self, update_info: BufferUpdate) -> torch.Tensor:
        """[bytes] uint8: the bucket, valid until the update is over."""

    def finish_weight_update(self) -> None:
        """Serve what was staged.

        Raises:
            WeightsRefusedError: tensors are missing.
        """
        self.last = self._served().swap_in(self._take())

    def shutdown(self) -> None:
        """Forget an unfinished update."""
        self._staging = None

    def _take(self) -> Staging:
        if self._staging is None:
            raise ValueError("no update is under way: /start_weight_update is first")
        staging, self._staging = self._staging, None
        return staging

    def _served(self) -> ServedModel:
        return served_model(self.vllm_config, self.model)


class ShmEngine(StagedEngine):
    """Reads buckets from files in shared memory, in place."""

    def receive(self, update_info: BufferUpdate) -> torch.Tensor:
        """[bytes] the file's content; it may be unlinked afterwards."""
        if not update_info.num_bytes:
            return torch.empty(0, dtype=torch.uint8)
        with open(update_info.path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size < update_info.num_bytes:
                raise ValueError(f"{update_info.path} has {size} of {update_info.num_bytes} bytes")
            mapped = mmap.mmap(
                file.fileno(), size, prot=mmap.PROT_READ | mmap.PROT_WRITE, flags=mmap.MAP_PRIVATE
            )
        return torch.frombuffer(mapped, dtype=torch.uint8)


class GlooEngine(StagedEngine):
    """Takes buckets from the trainer over TCP."""

    init_info_cls: ClassVar[type] = GlooInit

    _group: Any = None

    def init_transfer_engine(self, init_info: GlooInit) -> None:
        """Join the trainer's group; an earlier one is left."""
        self._group = None
        config = self.parallel_config
        own = config.data_parallel_index * config.world_size + config.rank
        timeout = timedelta(seconds=init_info.timeout_s)
        store = meeting_place(init_info.host, init_info.port, is_host=False, timeout=timeout)
        self._group = gloo_group(
            store,
            init_info.rank_offset + own,
            init_info.world_size,
            host=init_info.host,
            timeout=timeout,
        )

    def receive(self, update_info: BufferUpdate) -> torch.Tensor:
        """[bytes] what the trainer broadcasts."""
        if self._group is None:
            raise ValueError("the trainer has not connected: /init_weight_transfer_engine is first")
        buffer = torch.empty(update_info.num_bytes, dtype=torch.uint8)
        self._group.broadcast(buffer, 0).wait()
        return buffer

    def shutdown(self) -> None:
        """Leave the group."""
        super().shutdown()
        self._group = None


BACKENDS: dict[str, type[StagedEngine]] = {SHM: ShmEngine, GLOO: GlooEngine}
