"""The receiving end of a weight transfer, inside vLLM's worker.

vLLM 0.32 takes a model apart when an update starts, so one that fails leaves an engine that dies at
its next step. These only stage what arrives, and swap it in when the update is finished.
"""

import mmap
import os
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)
from vllm.utils.nccl import unpinned_nccl_env

from agentgym.engines.vllm.buffers import Entry, views
from agentgym.engines.vllm.gloo import GlooCarrier
from agentgym.engines.vllm.line import Carrier, Line, Seat, meeting_place
from agentgym.engines.vllm.loading import ServedModel, served_model
from agentgym.engines.vllm.nccl import NcclCarrier
from agentgym.engines.vllm.refusals import Loaded
from agentgym.engines.vllm.staged import Staging
from agentgym.engines.vllm.transfer import GLOO, NCCL, SHM


@dataclass
class NoInit(WeightTransferInitInfo):  # type: ignore[misc]
    """A backend without a connection."""


@dataclass
class LineInit(WeightTransferInitInfo):  # type: ignore[misc]
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
    """Collects an update in the host's memory and swaps it in at its end.

    A GPU has no room for the weights twice, as vLLM gives what it can to keys and values; from
    here they are loaded as from a file at the start. Every worker holds the whole checkpoint, and
    takes its part when it loads.
    """

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
        staging.to_host()
        self._staging = staging

    @abstractmethod
    def receive(self, update_info: BufferUpdate) -> torch.Tensor:
        """[bytes] uint8, on any device: the bucket, valid until the update is over."""

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


class LineEngine(StagedEngine):
    """Takes buckets that the trainer broadcasts."""

    init_info_cls: ClassVar[type] = LineInit
    carrier: ClassVar[Carrier]

    _line: Line | None = None

    def init_transfer_engine(self, init_info: LineInit) -> None:
        """Join the trainer's line; an earlier one is left."""
        self._leave()
        config = self.parallel_config
        own = config.data_parallel_index * config.world_size + config.rank
        seat = Seat(
            host=init_info.host,
            rank=init_info.rank_offset + own,
            world_size=init_info.world_size,
            timeout_s=init_info.timeout_s,
        )
        store = meeting_place(
            seat.host, init_info.port, is_host=False, timeout_s=init_info.timeout_s
        )
        line = Line(store, seat, self.carrier)
        line.join()
        self._line = line

    def receive(self, update_info: BufferUpdate) -> torch.Tensor:
        """[bytes] what the trainer broadcasts."""
        if self._line is None:
            raise ValueError("the trainer has not connected: /init_weight_transfer_engine is first")
        device = self.device if self.carrier.on_gpu else torch.device("cpu")
        buffer = torch.empty(update_info.num_bytes, dtype=torch.uint8, device=device)
        with unpinned_nccl_env():  # what vLLM sets for its own groups would not fit the trainer's
            self._line.broadcast(buffer)
        return buffer

    def shutdown(self) -> None:
        """Leave the line."""
        super().shutdown()
        self._leave()

    def _leave(self) -> None:
        line, self._line = self._line, None
        if line is not None:
            line.cut()


class GlooEngine(LineEngine):
    """Over TCP."""

    carrier = GlooCarrier()


class NcclEngine(LineEngine):
    """From GPU to GPU."""

    carrier = NcclCarrier()


BACKENDS: dict[str, type[StagedEngine]] = {SHM: ShmEngine, GLOO: GlooEngine, NCCL: NcclEngine}
