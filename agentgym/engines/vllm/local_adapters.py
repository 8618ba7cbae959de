"""LoRA adapters in vLLM in this process: each version is one, and goes when no turn needs it."""

import shutil
import tempfile
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from agentgym.engines.vllm.adapter_files import write_adapter
from agentgym.engines.weights import Weights
from agentgym.errors import AgentGymError, ConfigError, boundary


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter:
    """One version of the policy."""

    version: int
    folder: Path
    request: Any
    """vLLM's `LoRARequest`."""


class Sampling(Protocol):
    """A turn."""

    adapter: Adapter | None


def written(weights: Weights, number: int) -> Adapter:
    """Files for vLLM to load.

    Args:
        weights: of kind `lora`.
        number: not that of another adapter of the same engine.

    Raises:
        ConfigError: a value is not finite; nothing is left.
    """
    from vllm.lora.request import LoRARequest

    folder = Path(tempfile.mkdtemp(prefix="agentgym-lora-"))
    with ExitStack() as leftovers:
        leftovers.callback(shutil.rmtree, folder, ignore_errors=True)
        write_adapter(folder, weights)
        leftovers.pop_all()
    request = LoRARequest(f"agentgym-{number}", number, str(folder))
    return Adapter(version=weights.version, folder=folder, request=request)


class LoadedAdapters:
    """Those that vLLM has.

    Args:
        engine: vLLM's `LLMEngine`.
    """

    def __init__(self, engine: Any) -> None:
        self.current: Adapter | None = None
        """What new turns are sampled with; `None` = the model alone."""
        self._engine = engine
        self._loaded: list[Adapter] = []

    def load(self, adapter: Adapter) -> None:
        """Make it the current one.

        Raises:
            ConfigError: it is none for this model; the current one stays.
        """
        try:
            with boundary(ConfigError, "it does not load"):
                self._engine.add_lora(adapter.request)
        except AgentGymError as error:
            self._remove(adapter)
            reason = " ".join(str(error).split())
            raise ConfigError(f"vLLM refuses the adapter {adapter.version}: {reason}") from error
        self._loaded.append(adapter)
        self.current = adapter

    def drop_unused(self, turns: Iterable[Sampling]) -> None:
        """Remove those that neither these turns nor new ones need."""
        if not self._loaded or self._loaded == [self.current]:
            return
        needed = {id(turn.adapter) for turn in turns} | {id(self.current)}
        unused = [adapter for adapter in self._loaded if id(adapter) not in needed]
        for adapter in unused:
            self._remove(adapter)
            self._loaded.remove(adapter)

    def close(self) -> None:
        """Remove all files."""
        for adapter in self._loaded:
            shutil.rmtree(adapter.folder, ignore_errors=True)
        self._loaded, self.current = [], None

    def _remove(self, adapter: Adapter) -> None:
        self._engine.remove_lora(adapter.request.lora_int_id)
        shutil.rmtree(adapter.folder, ignore_errors=True)
