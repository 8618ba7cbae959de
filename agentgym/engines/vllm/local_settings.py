"""How vLLM runs in this process, beside what it is trained with."""

from dataclasses import dataclass
from typing import Literal

from agentgym.errors import ConfigError

_MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmSettings:
    """Of one engine; what is left out is chosen by the device.

    A model split over several GPUs is a matter for servers: here every process has a whole one.
    """

    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Of weights and computation; `auto` = as the model is stored, on GPUs float32 as bfloat16."""
    max_context: int | None = None
    """Longest prompt plus completion, in tokens; `None` = what the model was made for."""
    kv_cache_bytes: int | None = None
    """Of keys and values. `None` = 1 GiB on CPU; on a GPU what `gpu_memory_utilization` leaves."""
    gpu_memory_utilization: float = 0.4
    """Of a GPU's memory, for weights and cache together; the rest is for training. Not looked at
    where `kv_cache_bytes` is given."""
    max_num_seqs: int = 256
    """Most turns at once; others wait."""
    enforce_eager: bool | None = None
    """No CUDA graphs and no compilation; `None` = only on CPU, where compiling takes a minute."""
    enable_prefix_caching: bool = True
    """Keep keys and values of prompts, for later turns and for the rest of a group."""
    lora_rank: int = 0
    """Highest rank of adapters that may come as weights; 0 = none."""
    cpu_block_size: int = 32
    """Tokens; what is shared between prompts is whole blocks. A multiple of 32."""
    seed: int = 0
    """For what has no seed of its own; turns have."""

    def __post_init__(self) -> None:
        """Refuse what vLLM could not run with.

        Raises:
            ConfigError: a value is out of range; names it.
        """
        in_range = {
            "max_context": self.max_context is None or self.max_context >= 2,
            "kv_cache_bytes": self.kv_cache_bytes is None or self.kv_cache_bytes >= _MIB,
            "gpu_memory_utilization": 0.0 < self.gpu_memory_utilization <= 1.0,
            "max_num_seqs": self.max_num_seqs >= 1,
            "lora_rank": self.lora_rank >= 0,
            "cpu_block_size": self.cpu_block_size > 0 and self.cpu_block_size % 32 == 0,
        }
        wrong = [f"{name}={getattr(self, name)}" for name, fine in in_range.items() if not fine]
        if wrong:
            raise ConfigError(
                f"vLLM cannot run with {', '.join(wrong)}: need max_context >= 2, kv_cache_bytes "
                ">= 1048576, 0 < gpu_memory_utilization <= 1, max_num_seqs >= 1, lora_rank >= 0 "
                "and a cpu_block_size that is a multiple of 32"
            )
