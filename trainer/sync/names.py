"""The tensors of a trained model under the names of its checkpoint.

Wrappers add to names (PEFT, DDP, compilation) and tying repeats tensors; a checkpoint knows
neither.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from accelerate.utils import extract_model_from_parallel, is_peft_model
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

_WRAPPERS = ("module.", "_orig_mod.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module.")


def plain_name(name: str) -> str:
    """A tensor's name without what wrappers and an adapter add to it."""
    for wrapper in _WRAPPERS:
        name = name.removeprefix(wrapper).replace(f".{wrapper}", ".")
    return name.removeprefix("base_model.model.").replace(".base_layer.", ".")


class Named(NamedTuple):
    """A tensor of a checkpoint and where it comes from."""

    name: str
    tensor: Tensor
    """A parameter or buffer of the model, possibly one rank's part of it."""
    tuner: Any = None
    """The adapter's layer whose delta belongs onto it, with the tensor's name in it."""


def full_tensors(model: nn.Module) -> Iterator[Named]:
    """Every tensor of the model's checkpoint once, adapters aside, in the model's order."""
    plain: Any = extract_model_from_parallel(model, keep_torch_compile=False)
    tuners = _tuners(plain) if is_peft_model(plain) else {}
    seen: set[int] = set()
    for name, tensor in plain.state_dict(keep_vars=True).items():
        if id(tensor) in seen or _belongs_to_adapter(name, plain):
            continue
        seen.add(id(tensor))
        owner = name.rpartition(".base_layer.")[0]
        yield Named(_saved_name(name, plain), tensor, tuners.get(owner) if owner else None)


def _tuners(model: nn.Module) -> Mapping[str, Any]:
    from peft.tuners.tuners_utils import BaseTunerLayer

    return {name: m for name, m in model.named_modules() if isinstance(m, BaseTunerLayer)}


def _belongs_to_adapter(name: str, model: Any) -> bool:
    """Whether a tensor is no part of the merged model: adapters, and originals they replace."""
    if not is_peft_model(model):
        return False
    if ".modules_to_save." in name:
        return f".modules_to_save.{model.active_adapter}." not in name
    if ".original_module." in name:
        return True
    return any(f".{prefix}" in name for prefix in _adapter_prefixes(model))


def _adapter_prefixes(model: Any) -> set[str]:
    from peft.tuners.tuners_utils import BaseTunerLayer

    layers = (m for m in model.modules() if isinstance(m, BaseTunerLayer))
    return {name for m in layers for name in (*m.adapter_layer_names, *m.other_param_names)}


def _saved_name(name: str, model: Any) -> str:
    if is_peft_model(model):
        name = name.replace(f".modules_to_save.{model.active_adapter}.", ".")
    return plain_name(name)


def is_sharded(model: nn.Module) -> bool:
    """Whether a rank holds only part of some tensor."""
    return any(isinstance(parameter, DTensor) for parameter in model.parameters())
