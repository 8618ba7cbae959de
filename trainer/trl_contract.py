"""What this package relies on in TRL beyond its public interface, checked when it is imported.

`GRPOTrainer` is imported here for all others, without TRL's warning of versions of vLLM that it was
not made for: vLLM is reached without TRL here, so nobody could do anything about it.
"""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import trl
from packaging.version import Version
from trl.trainer import utils

__all__ = ["GRPOTrainer", "check", "without_remark_on_vllm"]

METHODS = (
    "_calculate_rewards",
    "_get_grad_norm",
    "_load_best_model",
    "_log_completion_extra",
    "_log_metric",
    "_send_telemetry",
    "log",
    "training_step",
)
FUNCTIONS = ("use_adapter", "get_callable_name")


@contextmanager
def without_remark_on_vllm() -> Iterator[None]:
    """Within the block TRL does not warn of the installed vLLM; all other warnings are shown."""
    with warnings.catch_warnings():
        remark = "TRL currently supports vLLM versions"
        warnings.filterwarnings("ignore", message=remark, category=UserWarning)
        yield


with without_remark_on_vllm():
    from trl.trainer.grpo_trainer import GRPOTrainer


def check(version: str = trl.__version__, methods: Sequence[str] = METHODS) -> None:
    """Raise if the installed TRL is not the one this trainer was written for.

    Raises:
        ImportError: names what is missing.
    """
    if not Version("1.16") <= Version(version) < Version("1.17"):
        raise ImportError(f"trl {version} is installed, this trainer needs trl>=1.16,<1.17")
    missing = [name for name in methods if name not in dir(GRPOTrainer)]
    missing += [name for name in FUNCTIONS if name not in dir(utils)]
    if missing:
        raise ImportError(f"trl {version} has no {missing[0]!r}, which this trainer relies on")


check()
