"""One optimizer step's gradient: forward and backward of its micro-batches, and nothing else.

The loss of a micro-batch is its share of the step's loss over all ranks, so the gradient is a plain
sum and does not depend on how the step was split. Where a backend averages gradients over ranks,
the share is multiplied by their number.
"""

import time
from collections.abc import Callable
from contextlib import nullcontext

import torch
from accelerate import Accelerator
from accelerate.utils import DistributedType
from torch import Tensor, nn

from agentgym.errors import UsageError
from agentgym.trainer.corrections import Correction, CorrectionSettings, Opinions, correct
from agentgym.trainer.logprobs import TokenLogprobs
from agentgym.trainer.losses import FlatTokens, LossOutput, LossSettings, Normalizer, policy_loss
from agentgym.trainer.metrics import StepMetrics
from agentgym.trainer.packing import PackedBatch
from agentgym.trainer.window import MicroBatch, Part

Forward = Callable[[PackedBatch], TokenLogprobs]


class Update:
    """Accumulates the gradient of one part of a window.

    Args:
        forward: log-probabilities and entropy under the policy, with gradient.
        reference: the same under the reference, without; `None` if the loss has no use for it.
        correction: what the loss makes of the sampler's log-probabilities.
    """

    def __init__(
        self,
        accelerator: Accelerator,
        settings: LossSettings,
        *,
        forward: Forward,
        reference: Forward | None,
        correction: CorrectionSettings | None = None,
    ) -> None:
        self._accelerator = accelerator
        self._settings = settings
        self._forward = forward
        self._reference = reference
        self._correction = CorrectionSettings() if correction is None else correction
        self.metrics = StepMetrics()
        self.logprob_seconds = 0.0
        """In passes without gradient."""
        self._failure: UsageError | None = None

    def run(self, model: nn.Module, part: Part) -> Tensor:
        """[] this rank's loss, scaled like the gradient; the mean over ranks is the step's loss."""
        total = torch.zeros((), device=self._accelerator.device)
        last = len(part.micro_batches) - 1
        for index, micro in enumerate(part.micro_batches):
            self._accelerator.gradient_state._set_sync_gradients(index == last)
            defer = nullcontext() if index == last else self._accelerator.no_sync(model)
            with defer:
                total += self._backward(micro, part.normalizer)
        return total

    def refuse_failure(self) -> None:
        """Raise what the loss of a micro-batch was refused with; before the optimizer steps.

        Not at once: the passes of the other ranks wait for those of this one.
        """
        if self._failure is not None:
            raise self._failure

    def _backward(self, micro: MicroBatch, normalizer: Normalizer) -> Tensor:
        batch = micro.batch.to(str(self._accelerator.device))
        reference = self._reference_logprobs(micro, batch)
        logprobs, entropy = self._forward(batch)
        if micro.old_logprobs is None:
            micro.old_logprobs = logprobs.detach()
        correction = self._correct(micro, batch, logprobs.detach())
        tokens = FlatTokens(
            logprobs=logprobs,
            old_logprobs=micro.old_logprobs,
            advantages=batch.advantages,
            sequence_ids=batch.sequence_ids,
            sequence_sizes=batch.sequence_sizes,
            ref_logprobs=reference,
            entropy=entropy,
            weights=correction.weights,
            kl_weights=correction.kl_weights,
        )
        output = self._loss(tokens, normalizer)
        self.metrics.add_loss(output)
        self.metrics.add_tokens(computed=batch.input_ids.numel(), useful=batch.num_tokens)
        loss: Tensor = output.loss * self._accelerator.num_processes
        self._accelerate_backward(loss)
        return loss.detach()

    def _loss(self, tokens: FlatTokens, normalizer: Normalizer) -> LossOutput:
        """That of a micro-batch; 0 if it was refused."""
        try:
            return policy_loss(tokens, self._settings, normalizer)
        except UsageError as error:
            self._failure = self._failure or error
            return LossOutput(tokens.logprobs.sum() * 0.0)

    def _correct(self, micro: MicroBatch, batch: PackedBatch, current: Tensor) -> Correction:
        assert micro.old_logprobs is not None
        opinions = Opinions(
            current=current,
            old=micro.old_logprobs,
            sampler=batch.old_logprobs,
            advantages=batch.advantages,
            sequence_ids=batch.sequence_ids,
        )
        found = correct(opinions, self._correction)
        self.metrics.add_dropped(found)
        if not micro.is_measured:
            self.metrics.add_mismatch(opinions, found, is_whole=self._correction.needs_whole)
            micro.is_measured = True
        return found

    def _reference_logprobs(self, micro: MicroBatch, batch: PackedBatch) -> Tensor | None:
        if self._reference is None:
            return None
        if micro.ref_logprobs is None:
            started = time.perf_counter()
            micro.ref_logprobs = self._reference(batch).logprobs
            self.logprob_seconds += time.perf_counter() - started
        return micro.ref_logprobs

    def _accelerate_backward(self, loss: Tensor) -> None:
        """Backward through accelerate, which divides by accumulation steps; here they are none."""
        if self._accelerator.distributed_type == DistributedType.DEEPSPEED:
            self._accelerator.backward(loss, scale_wrt_gas=False)
            return
        self._accelerator.backward(loss * self._accelerator.gradient_accumulation_steps)
