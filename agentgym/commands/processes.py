"""The processes of a run, as a launcher such as `torchrun` starts them.

A launcher kills the rest when one has ended with a failure. So the one that writes what the run has
one of may end first, and the others wait for it; not for ever, since it may wait for them.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta

PATIENCE = timedelta(seconds=30)
_DONE = "agentgym/main process is done"


def rank() -> int:
    """Number of this process; 0 is the main one."""
    return int(os.environ.get("RANK", "0"))


def world_size() -> int:
    """How many processes there are."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def from_main(value: str) -> str:
    """What the main process has; once the trainer's settings have formed the group."""
    if world_size() == 1:
        return value
    from accelerate.utils import broadcast_object_list

    values: list[str] = broadcast_object_list([value])
    return values[0]


@contextmanager
def main_leaves_first() -> Iterator[None]:
    """On every way out of the block, the other processes wait until the main one is out of it."""
    try:
        yield
    finally:
        if world_size() > 1:
            _meet_main()


def _meet_main() -> None:
    import torch.distributed as dist

    if not dist.is_initialized():
        return
    store = dist.distributed_c10d._get_default_store()
    with suppress(RuntimeError):  # of the store, once the process that has it is gone
        if rank() == 0:
            store.set(_DONE, "")
        else:
            store.wait([_DONE], PATIENCE)
