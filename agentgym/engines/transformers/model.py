"""The trained model as an engine calls it.

Wrappers of the training side (DDP, compilation, accelerate's autocast, PEFT) stay or go so that the
engine sees what the trainer sees; while the engine samples, the model is in evaluation mode with an
attention that accepts explicit masks, and at rest it is exactly as its owner left it.
"""

import inspect
from typing import Any

import torch
from accelerate.utils import extract_model_from_parallel
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.utils.import_utils import is_peft_available

from agentgym.engines.transformers.cache import SlotCache
from agentgym.errors import ConfigError

_MASKABLE = ("sdpa", "eager")
"""Attention implementations that take a [B, 1, T, L] mask."""


class PolicyModel:
    """A causal language model and how to call it."""

    outer: Any
    """What is called, a module: keeps PEFT adapters and accelerate's mixed precision."""
    base: PreTrainedModel
    """The transformers model inside, for its configuration and signature."""
    cache_argument: str | None
    """Name of the key/value cache in the model's signature; `None` if it takes none."""
    has_virtual_tokens: bool
    """Whether a PEFT adapter puts learned embeddings before the prompt."""

    def __init__(self, model: nn.Module) -> None:
        self.outer = extract_model_from_parallel(model, keep_torch_compile=False)
        base, self.has_virtual_tokens = _without_peft(self.outer)
        if not isinstance(base, PreTrainedModel):
            raise ConfigError(
                f"the engine samples from transformers models, not from {type(base).__name__}"
            )
        self.base = base
        self.cache_argument = _cache_argument(base)
        self._training: list[nn.Module] | None = None
        """Modules to put back into training mode; `None` = the model is not held."""
        self._attention: str | None = None

    @property
    def device(self) -> torch.device:
        return self._embedding.device

    @property
    def vocabulary(self) -> int:
        """Number of ids the model can embed."""
        return self._embedding.shape[0]

    @property
    def _embedding(self) -> Tensor:
        weight = self.base.get_input_embeddings().weight
        assert isinstance(weight, Tensor)
        return weight

    def max_context(self) -> int | None:
        """Positions the model was made for; `None` if its configuration does not say."""
        names = self.base.config.get_text_config(decoder=True).attribute_map
        name = "max_position_embeddings"
        limit = self.text_config().get(names.get(name, name))
        return limit if isinstance(limit, int) else None

    def text_config(self) -> dict[str, Any]:
        """Configuration of the decoder."""
        config: dict[str, Any] = self.base.config.get_text_config(decoder=True).to_dict()
        return config

    def next_logits(
        self, ids: Tensor, positions: Tensor, visible: Tensor, cache: SlotCache
    ) -> Tensor:
        """[B, V] logits after the last of [B, T] ids.

        Args:
            ids: [B, T].
            positions: [B, T].
            visible: [B, T, L] positions of its row that each query may see; at least one each.
            cache: takes the new keys and values; planned by the caller.
        """
        assert self.cache_argument is not None
        output = self.outer(
            input_ids=ids,
            position_ids=positions,
            attention_mask=self._mask(visible),
            use_cache=True,
            logits_to_keep=1,
            **{self.cache_argument: cache},
        )
        logits: Tensor = output.logits[:, -1]
        return logits

    def hold(self, *, explicit_masks: bool = True) -> None:
        """Put the model into the state for sampling; idempotent.

        Args:
            explicit_masks: replace an attention that takes no [B, 1, T, L] mask.
        """
        if self._training is not None:
            return
        self._training = [module for module in self.outer.modules() if module.training]
        for module in self._training:
            module.training = False
        config = self.base.config
        self._attention = config._attn_implementation
        if explicit_masks and self._attention not in _MASKABLE:
            config._attn_implementation = "sdpa"

    def let_go(self) -> None:
        """Undo `hold`; idempotent."""
        if self._training is None:
            return
        for module in self._training:
            module.training = True
        self._training = None
        if self.base.config._attn_implementation != self._attention:
            self.base.config._attn_implementation = self._attention

    def _mask(self, visible: Tensor) -> Tensor:
        """Boolean for sdpa; eager attention adds it to the scores."""
        if self.base.config._attn_implementation != "eager":
            return visible[:, None]
        mask = torch.zeros(visible.shape, dtype=self.base.dtype, device=visible.device)
        return mask.masked_fill_(~visible, -torch.inf)[:, None]


def _without_peft(model: nn.Module) -> tuple[nn.Module, bool]:
    """The model inside its adapters, and whether these are virtual tokens."""
    if not is_peft_available():
        return model, False
    from peft import PeftModel

    if not isinstance(model, PeftModel):
        return model, False
    return model.get_base_model(), bool(model.active_peft_config.is_prompt_learning)


def _cache_argument(model: PreTrainedModel) -> str | None:
    """`cache` in newer releases of transformers, `past_key_values` in older ones."""
    names = inspect.signature(type(model).forward).parameters
    return next((name for name in ("cache", "past_key_values") if name in names), None)
