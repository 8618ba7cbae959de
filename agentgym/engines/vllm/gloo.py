"""Weights over TCP, to servers anywhere."""

from datetime import timedelta
from typing import Any

from agentgym.engines.vllm.line import Seat
from agentgym.engines.vllm.ports import source_address


class GlooCarrier:
    """Moves bytes from host memory to host memory."""

    on_gpu = False

    def join(self, store: Any, seat: Seat) -> Any:
        """A `ProcessGroupGloo` with the others."""
        from torch import distributed

        gloo: Any = distributed.ProcessGroupGloo
        options = gloo._Options()
        options._timeout = timedelta(seconds=seat.timeout_s)
        options._devices = [gloo.create_device(hostname=source_address(seat.host))]
        return gloo(store, seat.rank, seat.world_size, options)
