"""Which models the slot engine serves, and why not the others.

Known obstacles are read from the configuration; a model without one must then prove itself: the
logits that come through the slot cache are compared with those of a plain forward call.
"""

from typing import Any

import torch

from agentgym.engines.transformers.cache import SlotCache
from agentgym.engines.transformers.feed import Feed
from agentgym.engines.transformers.model import PolicyModel
from agentgym.errors import AgentGymError, ConfigError, EngineError, boundary

_TOLERANCE = {torch.float64: 1e-6, torch.float32: 1e-3}
"""Of the largest logit; half precision rounds to about 1e-2."""
_HALF_TOLERANCE = 5e-2


def refuse_unservable(model: PolicyModel) -> None:
    """Raise if no engine of this package can sample from the model.

    Raises:
        ConfigError: names the model and what it is.
    """
    name = type(model.base).__name__
    if model.base.config.is_encoder_decoder:
        raise ConfigError(f"{name} is an encoder-decoder model; a decoder-only one is needed")
    if not model.base.can_generate():
        raise ConfigError(f"{name} has no language modelling head; load it as a causal LM")
    if model.has_virtual_tokens:
        raise ConfigError(
            f"{name} has a PEFT adapter of virtual tokens, whose generation differs from its "
            "forward pass; use LoRA"
        )
    if any(type(parameter).__name__ == "DTensor" for parameter in model.base.parameters()):
        raise ConfigError(f"{name} is sharded over processes; use a vLLM engine to sample from it")


def slot_obstacle(model: PolicyModel, max_context: int) -> str | None:
    """Why the slot engine cannot serve the model, in words, or `None` if it can."""
    return _declared_obstacle(model, max_context) or _probe(model)


def _declared_obstacle(model: PolicyModel, max_context: int) -> str | None:
    if model.base._is_stateful:
        return "it keeps a recurrent state"
    if model.cache_argument is None:
        return "it takes no key/value cache"
    config = model.text_config()
    layers = _layer_types(config)
    windows = {
        "sliding_attention": config.get("sliding_window"),
        "chunked_attention": config.get("attention_chunk_size"),
    }
    for kind in sorted(layers - {"full_attention"}):
        window = windows.get(kind)
        if window is None:
            return f"it has layers of type {kind!r}"
        if window < max_context:
            return f"its {kind} of {window} tokens is shorter than max_context={max_context}"
    return None


def _layer_types(config: dict[str, Any]) -> set[str]:
    if config.get("layer_types"):
        return set(config["layer_types"])
    if config.get("sliding_window") is not None:
        return {"sliding_attention"}
    return {"chunked_attention" if config.get("attention_chunk_size") else "full_attention"}


def _probe(model: PolicyModel) -> str | None:
    """What goes wrong with a short sequence, or `None`."""
    model.hold()
    try:
        with boundary(EngineError, "it does not take the slot cache"), torch.no_grad():
            error = _logit_error(model)
    except AgentGymError as failure:
        return str(failure)
    finally:
        model.let_go()
    if error <= _TOLERANCE.get(model.base.dtype, _HALF_TOLERANCE):
        return None
    return f"its logits through the slot cache are off by {error:.1e} of their size"


def _logit_error(model: PolicyModel) -> float:
    """Largest difference to a plain forward call, relative to the largest logit.

    The sequence takes the second of two rows: a padded prefill, then a decoding step.
    """
    ids = torch.randint(model.vocabulary, (7,), generator=torch.Generator().manual_seed(0)).numpy()
    cache = SlotCache()
    cache.reserve(2, len(ids) + 1)
    prefill = Feed.empty(2, len(ids), cache.padding_slot)
    prefill.put(1, ids[:-1], 0, base=cache.length)
    prefill.run(model, cache, torch.tensor([0, 1]))
    step = Feed.empty(2, 1, cache.padding_slot)
    step.put(1, ids[-1], len(ids) - 1, base=cache.length)
    ours = step.run(model, cache, slice(2))[1]
    plain = model.outer(input_ids=torch.from_numpy(ids)[None].to(model.device), use_cache=False)
    expected = plain.logits[0, -1]
    return float((ours - expected).abs().max() / expected.abs().max().clamp_min(1e-6))
