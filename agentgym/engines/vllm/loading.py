"""Puts new weights into a worker of vLLM 0.32, in this process or behind a server.

The reload is vLLM's own, layer by layer; what it leaves out on CPU is done here: an output layer
that shares the embedding's weights keeps a packed copy of the old ones.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import torch
from safetensors import safe_open
from vllm.model_executor.layers.fused_moe.routed_experts import RoutedExperts
from vllm.model_executor.layers.vocab_parallel_embedding import (
    UnquantizedEmbeddingMethod,
    VocabParallelEmbedding,
)
from vllm.model_executor.model_loader.reload.inplace import reload_weights
from vllm.platforms import current_platform

from agentgym.engines.loading import refuse_missing_folder
from agentgym.engines.vllm.checkpoint import files_of, read_specs
from agentgym.engines.vllm.refusals import Loaded, WeightsRefusedError
from agentgym.engines.vllm.staged import Digest, Staging, digest
from agentgym.engines.weights import TensorSpec
from agentgym.errors import ConfigError


class ServedModel:
    """A model that serves, with what is known of its weights.

    Args:
        vllm_config: vLLM's `VllmConfig`.
        model: the module that computes, a `torch.nn.Module`.
    """

    def __init__(self, vllm_config: Any, model: torch.nn.Module) -> None:
        self._vllm_config = vllm_config
        self._model = model
        self._folder = _folder_of(vllm_config.model_config)
        self._expected: dict[str, TensorSpec] | None = None
        self._digests: dict[str, Digest] | None = None

    def staging(self) -> Staging:
        """A new, empty update.

        Raises:
            ConfigError: the model's checkpoint cannot be read.
            WeightsRefusedError: no update would be right.
        """
        _refuse_experts_on_cpu(self._model)
        if self._expected is None:
            self._expected = read_specs(self._folder)
        return Staging(self._expected, self._vllm_config.model_config.dtype)

    def swap_in(self, staging: Staging) -> Loaded:
        """Serve what was staged; caches are the caller's to reset.

        Raises:
            WeightsRefusedError: it is not complete; the model is as it was.
        """
        tensors = staging.complete()
        if self._digests is None:
            self._digests = self._read_digests(tensors)
        with torch.no_grad():
            reload_weights(self._vllm_config, self._model, iter(tensors.items()), None, True)
            repack_tied_output_layer(self._model)
        if torch.accelerator.is_available():  # a trainer may change its tensors right afterwards
            torch.accelerator.synchronize()
        changed = sum(self._digests.get(name) != now for name, now in staging.digests.items())
        self._digests = dict(staging.digests)
        return Loaded(len(tensors), changed)

    def _read_digests(self, names: Mapping[str, Any]) -> dict[str, Digest]:
        """Checksums of the weights that the engine was started with."""
        dtype = self._vllm_config.model_config.dtype
        digests: dict[str, Digest] = {}
        for path in files_of(self._folder):
            with safe_open(path, framework="pt") as file:
                for name in names.keys() & set(file.keys()):
                    digests[name] = digest(file.get_tensor(name).to(dtype))
        return digests


_served: WeakKeyDictionary[torch.nn.Module, ServedModel] = WeakKeyDictionary()


def served_model(vllm_config: Any, model: torch.nn.Module) -> ServedModel:
    """What is known of a model; the same object for the same model."""
    if model not in _served:
        _served[model] = ServedModel(vllm_config, model)
    return _served[model]


def _refuse_experts_on_cpu(model: torch.nn.Module) -> None:
    """After a reload vLLM on CPUs computes wrongly with a mixture's experts, and says nothing."""
    names = [name for name, module in model.named_modules() if isinstance(module, RoutedExperts)]
    if names and current_platform.is_cpu():
        raise WeightsRefusedError(
            "vLLM on CPUs cannot be given new experts of a mixture, use --engine transformers",
            names,
        )


def repack_tied_output_layer(model: torch.nn.Module) -> None:
    """Pack the weights of output layers again, which a reload on CPU forgets if they are tied."""
    for module in model.modules():
        if isinstance(module, VocabParallelEmbedding) and isinstance(
            module.quant_method, UnquantizedEmbeddingMethod
        ):
            module.quant_method.process_weights_after_loading(module)


def _folder_of(model_config: Any) -> Path:
    """Where the served model's files are, on a disk or in the hub's cache."""
    if Path(model_config.model).is_dir():
        return Path(model_config.model)
    refuse_missing_folder(model_config.model)
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        return Path(
            snapshot_download(
                model_config.model, revision=model_config.revision, local_files_only=True
            )
        )
    except (HfHubHTTPError, LocalEntryNotFoundError) as error:
        raise ConfigError(
            f"the files of the served model {model_config.model!r} are not in the hub's cache"
        ) from error
