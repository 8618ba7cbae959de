"""The one forward pass: log-probabilities of the trained tokens under any model.

Current, old and reference policy all come through `token_logprobs`, with the sampler's temperature
applied, so their ratios compare the same distribution the engine sampled from. Packed rows go to
the models that compute there what they compute on plain rows; `packing_refusal` finds out.

Units: nats. [N] trained tokens, [V] vocabulary.
"""

import inspect
from typing import Any, NamedTuple

import torch
from accelerate.utils import extract_model_from_parallel, is_peft_model
from torch import Tensor, nn
from transformers import PreTrainedConfig

from agentgym.trainer.attention import BLOCKS_ARGUMENT
from agentgym.trainer.packing import PackedBatch, Sample, pack, padded
from agentgym.trainer.selection import selected_logprobs

_TOLERANCE = {torch.float32: 1e-3, torch.float64: 1e-3}
"""How far packed and plain log-probabilities may differ, in nats; `_COARSE` in half precision."""
_COARSE = 0.1


class TokenLogprobs(NamedTuple):
    """What the forward pass says of the trained tokens."""

    logprobs: Tensor
    """[N] float32, with gradient unless disabled."""
    entropy: Tensor | None
    """[N] float32, no gradient; None unless asked for."""


def token_logprobs(
    model: nn.Module, batch: PackedBatch, *, temperature: float = 1.0, with_entropy: bool = False
) -> TokenLogprobs:
    """Log-probabilities of `batch.targets`, in that order.

    The head runs on the needed positions only. The call goes through `model` as it is, so gradient
    hooks of DDP and FSDP and PEFT adapters take part.
    """
    logits = _packed_logits(model, batch) if batch.blocks is not None else _logits(model, batch)
    return TokenLogprobs(
        *selected_logprobs(
            logits, batch.targets, temperature=temperature, with_entropy=with_entropy
        )
    )


def packing_refusal(model: nn.Module) -> str | None:
    """Why packed rows would be wrong for this model, or None if they are right.

    What the config says comes first, so that the answer has a name. Then the model itself is asked,
    because only running it shows that blocks and positions reach every layer.
    """
    plain = _unwrapped(model)
    if plain.config.is_encoder_decoder:
        return "it is an encoder-decoder model"
    if plain._is_stateful:
        return "it keeps a state from token to token along the row"
    reason = _attention_refusal(plain.config.get_text_config())
    if reason is not None:
        return reason
    missing = {"position_ids", "logits_to_keep"} - _parameters(plain)
    if missing:
        return f"its forward pass takes no {' and no '.join(sorted(missing))}"
    if any(not parameter.numel() or parameter.is_meta for parameter in plain.parameters()):
        return None
    return _difference(model)


def _packed_logits(model: nn.Module, batch: PackedBatch) -> Tensor:
    """[N, V]: for each trained token the logits that predict it.

    The empty mask stops Transformers from making one, and fails in any attention that does not
    go by blocks.
    """
    output = model(
        input_ids=batch.input_ids,
        position_ids=batch.position_ids,
        attention_mask=batch.input_ids.new_empty((1, 1, 0, 0), dtype=torch.bool),
        logits_to_keep=batch.columns,
        use_cache=False,
        **{BLOCKS_ARGUMENT: batch.blocks},
    )
    logits: Tensor = output.logits
    return logits.squeeze(0)


def _logits(model: nn.Module, batch: PackedBatch) -> Tensor:
    """The same from plain rows, also for models without `position_ids` or `logits_to_keep`."""
    columns, kept = torch.unique(batch.columns, return_inverse=True)
    optional = {
        "position_ids": batch.position_ids,
        "logits_to_keep": columns,
        "use_cache": False,
    }
    known = _parameters(_unwrapped(model))
    logits: Tensor = model(
        input_ids=batch.input_ids,
        attention_mask=batch.attention_mask,
        **{name: value for name, value in optional.items() if name in known},
    ).logits
    return logits[batch.rows, kept if "logits_to_keep" in known else batch.columns]


def _unwrapped(model: nn.Module) -> Any:
    plain = extract_model_from_parallel(model)
    return plain.get_base_model() if is_peft_model(plain) else plain


def _parameters(model: nn.Module) -> set[str]:
    return set(inspect.signature(model.forward).parameters)


def _attention_refusal(config: PreTrainedConfig) -> str | None:
    implementation = config._attn_implementation
    if implementation != "sdpa":
        return f"its attention is {implementation!r}, and packed rows need 'sdpa'"
    settings = config.to_dict()
    layers = set(settings.get("layer_types") or ())
    if layers - {"full_attention"}:
        return f"it has layers of type {', '.join(sorted(layers - {'full_attention'}))}"
    if not layers and settings.get("sliding_window") is not None:
        return f"its attention slides over {settings['sliding_window']} tokens"
    return None


@torch.no_grad()
def _difference(model: nn.Module) -> str | None:
    """Run a few tokens both ways; dropout is off meanwhile."""
    samples = _probe()
    training = model.training
    model.eval()
    try:
        device = next(model.parameters()).device
        ways = [pack(samples, token_budget=64)[0], padded(samples, token_budget=64)[0]]
        packed, plain = (token_logprobs(model, way.to(device)).logprobs for way in ways)
    except (RuntimeError, TypeError, ValueError) as error:
        return f"its forward pass failed on a packed row: {str(error).splitlines()[0]}"
    finally:
        model.train(training)
    difference = (packed - plain).abs().max().item()
    if difference <= _TOLERANCE.get(next(model.parameters()).dtype, _COARSE):
        return None
    return f"its log-probabilities on a packed row differ by {difference:.3g} nats"


def _probe() -> list[Sample]:
    """Three trajectories, of which two share a prompt; equal lengths, so that order is kept."""
    rows = [(0, [3, 5, 1, 4, 2, 4]), (0, [3, 5, 1, 2, 3, 1]), (1, [2, 4, 0, 5, 1, 3])]
    mask = [False, False, False, True, True, True]
    return [
        Sample(ids=ids, mask=mask, logprobs=[0.0] * 6, advantage=0.0, group=group, index=index)
        for index, (group, ids) in enumerate(rows)
    ]
