"""Weights from GPU to GPU. Written by reading; not run on a GPU.

Only how the group is made is NCCL's own; joining, sending, staging and deadlines are those of gloo.
No two members may have the same GPU.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from agentgym.engines.vllm.line import Seat
from agentgym.errors import ConfigError

_NO_WATCHDOG = {"TORCH_NCCL_BLOCKING_WAIT": "1"}
"""Its thread would end the whole process when a member is gone; the line watches for itself."""


class NcclCarrier:
    """Moves bytes from a GPU's memory to others'."""

    on_gpu = True

    def join(self, store: Any, seat: Seat) -> Any:
        """A `ProcessGroupNCCL` with the others; it connects at the first broadcast.

        Raises:
            ConfigError: no GPU.
        """
        refuse_without_gpu()
        from torch.distributed import distributed_c10d

        nccl: Any = vars(distributed_c10d)["ProcessGroupNCCL"]
        options = nccl.Options()
        options._timeout = timedelta(seconds=seat.timeout_s)
        with _environment(_NO_WATCHDOG):
            return nccl(store, seat.rank, seat.world_size, options)


def refuse_without_gpu() -> None:
    """Hold this process against what NCCL needs.

    Raises:
        ConfigError: it sees no GPU, or torch is built without NCCL.
    """
    import torch

    if not (torch.cuda.is_available() and torch.distributed.is_nccl_available()):
        raise ConfigError(
            "weights over NCCL go from GPU to GPU, and this process has none: start the servers "
            "with --transfer shm, or gloo if they are on other machines"
        )


@contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    """Variables for the time being."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
