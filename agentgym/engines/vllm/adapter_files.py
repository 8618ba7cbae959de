"""LoRA adapters on their way to vLLM, which reads them from folders."""

import json
import shutil
from pathlib import Path
from typing import Any

from agentgym.engines.weights import Weights
from agentgym.errors import ConfigError


def write_adapter(folder: Path, weights: Weights) -> None:
    """Write an adapter in PEFT's format; what was there goes.

    Raises:
        ConfigError: a value is not finite.
    """
    import torch
    from safetensors.torch import save_file

    tensors: dict[str, Any] = {}
    for bucket in weights.buckets():
        for name, tensor in bucket.items():
            tensors[name] = tensor.detach().cpu().contiguous()
            if not torch.isfinite(tensors[name]).all():
                raise ConfigError(f"the adapter's tensor {name} holds values that are not finite")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    save_file(tensors, folder / "adapter_model.safetensors")
    config = json.dumps(dict(weights.lora_config), default=_plain)
    (folder / "adapter_config.json").write_text(config)


def _plain(value: object) -> Any:
    """Sets and enumerations, as PEFT's configurations hold them, in JSON."""
    return sorted(value) if isinstance(value, (set, frozenset)) else str(value)
