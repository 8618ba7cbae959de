"""What a vLLM server loads into its workers to take weights from a trainer.

Given as `--worker-extension-cls agentgym.engines.vllm.extension.WorkerExtension`. Loading it
registers the transfer backends, before the worker looks for the one it is told to use.
"""

from typing import Any

import torch
from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory
from vllm.v1.worker.gpu_worker import Worker

from agentgym.engines.vllm.backends import BACKENDS, StagedEngine

for _name, _engine in BACKENDS.items():
    if _name not in WeightTransferEngineFactory._registry:
        WeightTransferEngineFactory.register_engine(_name, _engine)

# Attention of small bfloat16 models may be the first to use the tile unit of a CPU, and ends the
# process unless the kernel has been asked for it.
torch.cpu._init_amx()

_start_weight_update = Worker.start_weight_update


def _start_anew(worker: Any) -> None:
    """Start an update; one that was cut before its end is dropped, not in the way."""
    if isinstance(worker.weight_transfer_engine, StagedEngine):
        worker._weight_update_active = False
    _start_weight_update(worker)


Worker.start_weight_update = _start_anew


class WorkerExtension:
    """Methods for `/collective_rpc`."""

    weight_transfer_engine: Any

    def last_weight_update(self) -> dict[str, int]:
        """How many tensors the last finished update had, and how many of them were different."""
        return dict(self.weight_transfer_engine.last._asdict())
