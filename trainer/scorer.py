"""Log-probabilities without gradient: of the policy that played a window, and of the reference."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import torch
from torch import nn
from trl.trainer.utils import use_adapter

from agentgym.engines.base import refuse_unknown_ids
from agentgym.trainer.logprobs import TokenLogprobs
from agentgym.trainer.packing import PackedBatch
from agentgym.trainer.window import Window
from agentgym.trajectory import RolloutOutput

if TYPE_CHECKING:
    from agentgym.trainer.grpo import AgentGRPOTrainer


class Scorer:
    """Asks the trainer's `compute_logprobs`, the one entry point, about other policies."""

    def __init__(self, trainer: "AgentGRPOTrainer") -> None:
        self._trainer = trainer

    def fill_old_logprobs(self, window: Window) -> None:
        """For parts trained after the weights have changed; the first part needs none."""
        device = str(self._trainer.accelerator.device)
        for part in window.parts[1:]:
            for micro in part.micro_batches:
                batch = micro.batch.to(device)
                micro.old_logprobs = self._without_grad(self._trainer.policy, batch).logprobs

    def refuse_unknown(self, outputs: Iterable[RolloutOutput]) -> None:
        """Hold what was sampled against the policy, which fails at ids that it does not know.

        Raises:
            EngineError: the engine gave one.
        """
        for output in outputs:
            for segment in output.sampled:
                refuse_unknown_ids(output.request_id, segment.ids, self._vocabulary)

    def policy(self, batch: PackedBatch) -> TokenLogprobs:
        """Under the policy as it is now.

        Raises:
            EngineError: it does not know an id.
        """
        refuse_unknown_ids("a turn", batch.input_ids.flatten().tolist(), self._vocabulary)
        return self._without_grad(self._trainer.policy, batch)

    def reference(self, batch: PackedBatch) -> TokenLogprobs:
        """Under the reference: a model of its own, or the policy without its adapter."""
        trainer = self._trainer
        if trainer.ref_model is not None:
            return self._without_grad(trainer.ref_model, batch)
        policy = trainer.accelerator.unwrap_model(trainer.model)
        with use_adapter(policy, adapter_name="ref" if "ref" in policy.peft_config else None):
            return self._without_grad(trainer.policy, batch)

    @property
    def _vocabulary(self) -> int:
        return int(self._trainer.policy.config.get_text_config().vocab_size)

    def _without_grad(self, model: nn.Module, batch: PackedBatch) -> TokenLogprobs:
        with torch.no_grad():
            return self._trainer.compute_logprobs(model, batch)
