"""Whole tensors of the policy, bucket by bucket: parts put together, adapters merged, checked.

Every rank calls this in the same order, since putting the parts of a tensor together is collective.
The trained weights themselves are only read: an adapter is merged into a copy of its layer.
"""

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from accelerate.utils import extract_model_from_parallel, is_peft_model
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from transformers import PreTrainedModel
from transformers.core_model_loading import revert_weight_conversion

from agentgym.engines.weights import Bucket, TensorSpec
from agentgym.errors import ConfigError, UsageError, boundary
from agentgym.jsonable import as_json
from agentgym.trainer.sync.names import Named, full_tensors

Kind = Literal["full", "lora"]
_CHANGE_THE_BASE = ("pissa", "olora", "corda", "loftq", "lora_ga")


Tensors = dict[str, Tensor]
Form = Callable[[Tensors], Tensors]
"""From a tensor under its name within the model to those that it is in a checkpoint."""


class _Lazy(NamedTuple):
    specs: dict[str, TensorSpec]
    whole: Callable[[], Tensors]


@dataclass(frozen=True)
class Contents:
    """What will be gathered, known without gathering it."""

    kind: Kind
    tensors: tuple[_Lazy, ...]
    lora_config: Mapping[str, Any]

    @property
    def specs(self) -> dict[str, TensorSpec]:
        """Every tensor by name."""
        return {name: spec for lazy in self.tensors for name, spec in lazy.specs.items()}

    def buckets(self, max_bytes: int) -> Iterator[Bucket]:
        """The tensors; each bucket holds at least one, and no more than fit.

        Raises:
            UsageError: a tensor is not finite; names it.
        """
        bucket: Tensors = {}
        size = 0
        for name, tensor in (item for lazy in self.tensors for item in lazy.whole().items()):
            if bucket and size + tensor.nbytes > max_bytes:
                yield _checked(bucket)
                bucket, size = {}, 0
            bucket[name] = tensor
            size += tensor.nbytes
        if bucket:
            yield _checked(bucket)


def contents_of(model: nn.Module, kind: Kind, *, as_saved: bool = True) -> Contents:
    """What an update of this kind consists of.

    Args:
        model: the trained one, in any wrapping.
        kind: `full` is the model with its adapter merged, `lora` the adapter alone.
        as_saved: whether tensors have the names and shapes of the model's files, where experts of
            a mixture may lie one by one, or those within the model, where they are one tensor.

    Raises:
        ConfigError: an adapter is asked for, and the model has none, or one over other weights than
            those of its files.
    """
    if kind == "lora":
        return _adapter(model)
    form = _form_of(model) if as_saved else _unchanged
    return Contents("full", tuple(_lazy(named, form) for named in full_tensors(model)), {})


def _unchanged(tensors: Tensors) -> Tensors:
    return tensors


def _form_of(model: nn.Module) -> Form:
    """How Transformers saves the model's tensors."""
    plain: Any = extract_model_from_parallel(model, keep_torch_compile=False)
    base = plain.get_base_model() if is_peft_model(plain) else plain
    if not isinstance(base, PreTrainedModel):
        return _unchanged

    def saved(tensors: Tensors) -> Tensors:
        with boundary(ConfigError, f"{next(iter(tensors))} cannot be put as it is saved"):
            converted: Tensors = revert_weight_conversion(base, tensors)
        return converted

    return saved


def _lazy(named: Named, form: Form) -> _Lazy:
    name, tensor = named.name, named.tensor
    shape = torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")
    specs = {
        name: TensorSpec(shape=tuple(t.shape), dtype=str(t.dtype).removeprefix("torch."))
        for name, t in form({name: shape}).items()
    }
    if named.tuner is None:
        return _Lazy(specs, lambda: form({name: _whole(tensor)}))
    return _Lazy(specs, lambda: form({name: _merged(named)}))


def _whole(tensor: Tensor) -> Tensor:
    """All of a tensor, detached; collective where it is spread over ranks."""
    if isinstance(tensor, DTensor):
        tensor = tensor.full_tensor()
    return tensor.detach()


@torch.no_grad()
def _merged(named: Named) -> Tensor:
    """A tensor of the layer below an adapter, with the adapter's share."""
    from peft.tuners.tuners_utils import BaseTunerLayer

    if named.tuner.disable_adapters:
        return _whole(named.tensor)
    layer = copy.deepcopy(named.tuner)
    for part in layer.modules():
        if isinstance(part, BaseTunerLayer):
            part.merge()
    return _whole(layer.state_dict(keep_vars=True)[named.key])


def _adapter(model: nn.Module) -> Contents:
    from peft import get_peft_model_state_dict

    plain: Any = extract_model_from_parallel(model, keep_torch_compile=False)
    if not is_peft_model(plain):
        raise ConfigError("only an adapter can be synchronised as one: the model has none")
    name = plain.active_adapter
    settings = plain.peft_config[name].to_dict()
    _refuse_other_base(settings)
    tensors = get_peft_model_state_dict(plain, adapter_name=name, save_embedding_layers=False)
    config: Mapping[str, Any] = as_json(_plain(settings))
    return Contents(
        "lora", tuple(_lazy(Named(n, t), _unchanged) for n, t in tensors.items()), config
    )


def _refuse_other_base(settings: Mapping[str, Any]) -> None:
    """An adapter belongs onto the weights that the engine has, those of the model's files."""
    begins = str(settings.get("init_lora_weights")).lower()
    if begins.startswith(_CHANGE_THE_BASE):
        raise ConfigError(
            f"init_lora_weights={begins!r} changes the weights below the adapter, which the "
            "engine would not know: set sync_kind='full'"
        )


def _plain(config: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of an adapter as its file has them: sets as lists, for inference."""
    settings = {
        name: sorted(value) if isinstance(value, set) else value for name, value in config.items()
    }
    return settings | {"inference_mode": True}


def _checked(bucket: dict[str, Tensor]) -> dict[str, Tensor]:
    floating = {name: t for name, t in bucket.items() if t.is_floating_point()}
    if not floating:
        return bucket
    counts = torch.stack([(~torch.isfinite(t)).sum() for t in floating.values()]).tolist()
    for name, count in zip(floating, counts, strict=True):
        if count:
            raise UsageError(
                f"{count} of {floating[name].numel()} numbers in the policy's {name} are not "
                "finite: lower learning_rate, or look at the last trajectories"
            )
    return bucket
