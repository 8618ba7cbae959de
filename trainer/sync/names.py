"""The tensors of a trained model under the names of its checkpoint.

Wrappers add to names (PEFT, DDP, compilation) and tying repeats tensors; a checkpoint knows
neither.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from accelerate.utils import extract_model_from_parallel, is_peft_model
from torch import Tensor, nn

from agentgym.errors import ConfigError

_WRAPPERS = frozenset(
    (
        "module",
        "_orig_mod",
        "_fsdp_wrapped_module",
        "_checkpoint_wrapped_module",
        "base_layer",
        "token_adapter",
    )
)
"""Parts of names that wrappers put in, anywhere."""
_TYING = ("ensure_weight_tying", "trainable_token_indices", "token_indices")
"""Settings with which PEFT gives layers that share a tensor the same adapter."""
_ADAPTED = "base_model.model."
"""What PEFT puts before every name."""


def plain_name(name: str) -> str:
    """A tensor's name without what wrappers and an adapter add to it."""
    parts = name.split(".")
    kept = [part for part in parts[:-1] if part not in _WRAPPERS]
    return ".".join([*kept, parts[-1]]).removeprefix(_ADAPTED)


class Named(NamedTuple):
    """A tensor of a checkpoint and where it comes from."""

    name: str
    tensor: Tensor
    """A parameter or buffer of the model, possibly one rank's part of it."""
    tuner: Any = None
    """The adapter's layer whose delta belongs onto it, with the tensor in it."""
    key: str = ""
    """The tensor's name within `tuner`."""


def full_tensors(model: nn.Module) -> Iterator[Named]:
    """Every tensor of the model's checkpoint once, adapters aside, in the model's order.

    Raises:
        ConfigError: two tensors have one name, or an adapter parts what is tied.
    """
    plain: Any = extract_model_from_parallel(model, keep_torch_compile=False)
    tuners = _tuners(plain)
    seen: dict[int, Named] = {}
    names: set[str] = set()
    for path, tensor in plain.state_dict(keep_vars=True).items():
        if _is_replaced(path, plain):
            continue
        owner = _owner(path, tuners)
        key = path.removeprefix(f"{owner}.")
        if owner is not None and not key.startswith("base_layer."):
            continue
        named = Named(_saved_name(path, plain), tensor, tuners.get(owner), key)
        if id(tensor) in seen:
            _refuse_parted(seen[id(tensor)], named, plain)
            continue
        if named.name in names:
            raise ConfigError(f"two tensors of the model are called {named.name!r} in a checkpoint")
        names.add(named.name)
        seen[id(tensor)] = named
        yield named


def _refuse_parted(first: Named, second: Named, model: Any) -> None:
    """An engine has one tensor where two layers share it, so it cannot have two."""
    if first.tuner is None and second.tuner is None:
        return
    settings = model.active_peft_config.to_dict()
    if not any(settings.get(name) for name in _TYING):
        raise ConfigError(
            f"{first.name} and {second.name} are one tensor, and an adapter would make two of it: "
            "leave both out of target_modules, or set ensure_weight_tying=True in the adapter's "
            "settings"
        )


def _tuners(model: nn.Module) -> Mapping[str | None, Any]:
    """An adapter's layers by path."""
    if not is_peft_model(model):
        return {}
    from peft.tuners.tuners_utils import BaseTunerLayer

    return {name: m for name, m in model.named_modules() if isinstance(m, BaseTunerLayer)}


def _owner(path: str, tuners: Mapping[str | None, Any]) -> str | None:
    """The outermost of the adapter's layers that a tensor lies in."""
    parts = path.split(".")
    paths = (".".join(parts[:length]) for length in range(1, len(parts)))
    return next((path for path in paths if path in tuners), None)


def _is_replaced(path: str, model: Any) -> bool:
    """Whether a tensor is another one's original, or one that an adapter's layers share."""
    if not is_peft_model(model):
        return False
    if path.startswith("base_model.") and not path.startswith(_ADAPTED):
        return True
    if ".modules_to_save." in path:
        return f".modules_to_save.{model.active_adapter}." not in path
    return ".original_module." in path


def _saved_name(path: str, model: Any) -> str:
    if is_peft_model(model):
        path = path.replace(f".modules_to_save.{model.active_adapter}.", ".")
    return plain_name(path)
