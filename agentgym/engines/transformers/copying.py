"""Sampling from a copy of the trained model, so that it goes on while the original is trained.

The copy takes weights as a server would: staged, held against what it has, and swapped in as a
whole between two steps.
"""

import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import torch
from accelerate.utils import extract_model_from_parallel
from torch import Tensor, nn
from transformers.utils.import_utils import is_peft_available

from agentgym.engines.base import Generation, Sampling
from agentgym.engines.stops import Decode
from agentgym.engines.transformers.engine import transformers_engine
from agentgym.engines.weights import Bucket, Weights, match
from agentgym.errors import ConfigError, EngineError, boundary
from agentgym.threads import in_thread

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase as Tokenizer


class CopyEngine:
    """A `transformers_engine` over weights of its own; turns in flight start again at an update.

    Args:
        model: the trained one, in any wrapping; adapters are merged into the copy.
        max_rows: most turns at once.
        max_context: longest prompt plus completion; by default what the model was made for.
        decode: ids to text; needed for stop strings.
        tokenizer: a fast one; needed for constraints.

    Raises:
        ConfigError: no engine can serve the model, by its name.
    """

    keeps_weights: Literal[True] = True
    copies_model: Literal[True] = True
    is_shared = False

    def __init__(
        self,
        model: nn.Module,
        *,
        max_rows: int = 64,
        max_context: int | None = None,
        decode: Decode | None = None,
        tokenizer: "Tokenizer | None" = None,
    ) -> None:
        self._model = _merged_copy(model)
        self._engine = transformers_engine(
            self._model,
            max_rows=max_rows,
            max_context=max_context,
            decode=decode,
            tokenizer=tokenizer,
        )
        self._tensors = WholeTensors(self._model)
        self._version = 0
        self._versions = {0: 0}
        """Policy versions by the updates that the engine inside has seen."""

    @property
    def max_context(self) -> int:
        """Longest prompt plus completion, in tokens."""
        return self._engine.max_context

    @property
    def policy_version(self) -> int:
        """That of the last update."""
        return self._version

    async def generate(
        self, prompt_ids: tuple[int, ...], sampling: Sampling, *, session: str
    ) -> Generation:
        """Sample one turn; see `TransformersEngine.generate`."""
        generation = await self._engine.generate(prompt_ids, sampling, session=session)
        return replace(generation, policy_version=self._versions[generation.policy_version])

    def release(self, session: str) -> None:
        """The trajectory is over: its row is free. Unknown sessions are fine."""
        self._engine.release(session)

    async def update_weights(self, weights: Weights | None = None) -> int:
        """Swap all weights in between two steps; what came before the last bucket is staged.

        Raises:
            ConfigError: there are none, or not those of this model; the old ones serve.
            EngineError: they did not arrive, or the engine is closed.
        """
        if weights is None:
            raise ConfigError("this engine keeps weights of its own: hand over the new ones")
        staged = await in_thread(lambda: self._tensors.stage(weights))
        self._versions[self._engine.policy_version + 1] = weights.version
        await self._engine.change_weights(lambda: self._tensors.swap(staged))
        self._version = weights.version
        return self._version

    def dtype(self) -> str:
        """Of the copied weights, as in `torch.bfloat16`, without the `torch.`."""
        return str(next(self._model.parameters()).dtype).removeprefix("torch.")

    async def follow(self, version: int) -> None:
        """Nobody else can bring this copy to a version."""
        if version != self._version:
            raise EngineError(f"the copy is at policy version {self._version}, not at {version}")

    async def aclose(self) -> None:
        """End the thread; idempotent."""
        await self._engine.aclose()


class WholeTensors:
    """A model's tensors by the names of a checkpoint, replaced all at once or not at all."""

    def __init__(self, model: nn.Module) -> None:
        self.by_name: dict[str, Tensor] = {}
        """A tied tensor has one of its names."""
        seen: set[int] = set()
        for name, tensor in model.state_dict(keep_vars=True).items():
            if id(tensor) not in seen:
                seen.add(id(tensor))
                self.by_name[name] = tensor

    def stage(self, weights: Weights) -> Bucket:
        """A copy of everything: the trained tensors change while it waits for its turn.

        Raises:
            ConfigError: these are not the tensors of this model; nothing was taken.
            EngineError: they did not arrive.
        """
        if weights.kind != "full":
            raise ConfigError("this engine takes whole weights: set sync_kind='full'")
        match(weights.specs, self.by_name).refuse()
        for name, spec in weights.specs.items():
            if spec.shape != tuple(self.by_name[name].shape):
                raise ConfigError(
                    f"the engine's {name} has the shape {tuple(self.by_name[name].shape)}, the "
                    f"update's {spec.shape}: let the engine serve the model that is trained"
                )
        return {name: t.clone() for bucket in weights.buckets() for name, t in bucket.items()}

    @torch.no_grad()
    def swap(self, staged: Bucket) -> None:
        """Take over what was staged.

        Raises:
            ConfigError: it is not all of it.
        """
        match(staged, self.by_name).refuse()
        for name, tensor in staged.items():
            self.by_name[name].copy_(tensor)


def _merged_copy(model: nn.Module) -> nn.Module:
    with boundary(ConfigError, "the model cannot be copied"):
        plain = copy.deepcopy(extract_model_from_parallel(model, keep_torch_compile=False))
    if is_peft_available():
        from peft import PeftModel

        if isinstance(plain, PeftModel):
            plain = plain.merge_and_unload()
    _own_forward(plain)
    copied: nn.Module = plain.eval().requires_grad_(False)
    return copied


def _own_forward(model: nn.Module) -> None:
    """Take off accelerate's wrapper, which is bound to the trained model for ever.

    It comes along when the model is copied, and a copy that has it computes with the weights that
    are trained. Without it the copy computes in the precision of its weights.
    """
    for module in model.modules():
        vars(module).pop("forward", None)
        vars(module).pop("_original_forward", None)
