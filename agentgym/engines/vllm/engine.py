"""vLLM in this process as the engine: on a GPU that it shares with training, or on the CPU.

One thread owns vLLM and runs it step by step; weights go from the trainer's tensors into the model
without a copy in between.
"""

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any, Literal, TypeVar

from agentgym.engines.local import Ask, LocalEngine
from agentgym.engines.vllm.core import Turn, VllmCore
from agentgym.engines.vllm.local_adapters import Adapter, written
from agentgym.engines.vllm.local_settings import VllmSettings
from agentgym.engines.vllm.sampling import sampling_fields
from agentgym.engines.vllm.starting import has_tokenizer, on_cpu, start
from agentgym.engines.weights import Weights
from agentgym.engines.worker import Reply
from agentgym.errors import AgentGymError, ConfigError, EngineError, boundary
from agentgym.threads import in_thread

T = TypeVar("T")


class VllmEngine(LocalEngine[Turn]):
    """Samples from a copy of the policy in this process.

    Every process of a training run has one of its own, with the whole model. While it samples, the
    process may train; `sleep` gives a GPU's memory to training, and the next turn or update takes
    back what it needs.

    Args:
        model: folder with the model, or hub id.
        settings: how vLLM runs.

    Raises:
        MissingExtraError: vLLM is not installed.
        ConfigError: it cannot serve the model; says why.
    """

    keeps_weights: Literal[True] = True
    is_shared = False

    def __init__(self, model: str | Path, settings: VllmSettings | None = None) -> None:
        self._settings = settings or VllmSettings()
        self._vllm = start(model, self._settings)
        config = self._vllm.model_config
        self._dtype = str(config.dtype).removeprefix("torch.")
        self._core = VllmCore(self._vllm, can_sleep=not on_cpu())
        self._has_tokenizer = has_tokenizer(str(model))
        self._adapter_ids = count(1)
        self._is_updating = False
        super().__init__(
            self._core,
            self._turn,
            max_context=int(config.max_model_len),
            vocabulary=int(config.get_vocab_size()),
        )
        self._post(self._core.enter_thread)

    async def update_weights(self, weights: Weights | None = None) -> int:
        """Sample with new weights; turns under way go on.

        With all weights new, the rest of a turn comes from the new ones and every token is stamped;
        with a new adapter, a turn ends with the one that it began with.

        Raises:
            ConfigError: there are none, or not those of this model; the old ones serve.
            EngineError: they did not arrive, or vLLM failed at taking them.
        """
        if weights is None:
            raise ConfigError("vLLM keeps weights of its own: hand over the new ones")
        if self._is_updating:
            raise EngineError("the weights are being updated already")
        self._is_updating = True
        try:
            if weights.kind == "lora":
                adapter = await in_thread(lambda: self._written(weights))
                return await self._on_thread(lambda: self._core.adopt(adapter))
            staging = await in_thread(lambda: self._staged(weights))
            return await self._on_thread(lambda: self._core.swap_in(staging, weights.version))
        finally:
            self._is_updating = False

    def dtype(self) -> str:
        """As in `torch.bfloat16`, without the `torch.`."""
        return self._dtype

    async def follow(self, version: int) -> None:
        """Never asked of an engine that is not shared.

        Raises:
            EngineError: it does not have that version.
        """
        if version != self.policy_version:
            raise EngineError(f"the engine is at version {self.policy_version}, not {version}")

    async def sleep(self) -> None:
        """Give a GPU's memory to training; on CPU nothing happens.

        Raises:
            EngineError: turns are being sampled, or the engine is closed.
        """
        await self._on_thread(self._core.sleep)

    def _free(self) -> None:
        self._core.close()

    def _turn(self, ask: Ask) -> Turn:
        needs_text = ask.sampling.stop or ask.sampling.constraint
        if needs_text and not self._has_tokenizer:
            raise ConfigError(
                "stop strings and constraints need a tokenizer, and the model's folder has none"
            )
        fields = sampling_fields(ask.sampling, max_tokens=ask.limit, vocabulary=self._vocabulary)
        return Turn(ask=ask, fields=fields, reply=ask.reply)

    def _staged(self, weights: Weights) -> Any:
        from agentgym.engines.vllm.loading import served_model

        worker = self._core.worker
        staging = served_model(worker.vllm_config, worker.model_runner.get_model()).staging()
        for bucket in weights.buckets():
            staging.add(bucket.items())
        staging.complete()
        return staging

    def _written(self, weights: Weights) -> Adapter:
        if not self._settings.lora_rank:
            raise ConfigError("an adapter as weights: set lora_rank of the vLLM settings")
        return written(weights, next(self._adapter_ids))

    async def _on_thread(self, action: Callable[[], T]) -> T:
        """What it returns, or raises, between two steps."""
        reply: Reply[T] = Reply()

        def command() -> None:
            try:
                with boundary(EngineError, "vLLM failed"):
                    result = action()
            except AgentGymError as error:
                reply.give(error)
            else:
                reply.give(result)

        self._post(command)
        return await reply.future
