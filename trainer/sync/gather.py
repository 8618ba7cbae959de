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

from agentgym.engines.weights import Bucket, TensorSpec
from agentgym.errors import ConfigError, UsageError
from agentgym.jsonable import as_json
from agentgym.trainer.sync.names import Named, full_tensors

Kind = Literal["full", "lora"]
_CHANGE_THE_BASE = ("pissa", "olora", "corda", "loftq", "lora_ga")


class _Lazy(NamedTuple):
    name: str
    spec: TensorSpec
    whole: Callable[[], Tensor]


@dataclass(frozen=True)
class Contents:
    """What will be gathered, known without gathering it."""

    kind: Kind
    tensors: tuple[_Lazy, ...]
    lora_config: Mapping[str, Any]

    @property
    def specs(self) -> dict[str, TensorSpec]:
        """Every tensor by name."""
        return {tensor.name: tensor.spec for tensor in self.tensors}

    def buckets(self, max_bytes: int) -> Iterator[Bucket]:
        """The tensors; each bucket holds at least one, and no more than fit.

        Raises:
            UsageError: a tensor is not finite; names it.
        """
        bucket: dict[str, Tensor] = {}
        size = 0
        for tensor in self.tensors:
            whole = tensor.whole()
            if bucket and size + whole.nbytes > max_bytes:
                yield _checked(bucket)
                bucket, size = {}, 0
            bucket[tensor.name] = whole
            size += whole.nbytes
        if bucket:
            yield _checked(bucket)


def contents_of(model: nn.Module, kind: Kind) -> Contents:
    """What an update of this kind consists of.

    Args:
        model: the trained one, in any wrapping.
        kind: `full` is the model with its adapter merged, `lora` the adapter alone.

    Raises:
        ConfigError: an adapter is asked for, and the model has none, or one over other weights than
            those of its files.
    """
    if kind == "lora":
        return _adapter(model)
    return Contents("full", tuple(map(_lazy, full_tensors(model))), {})


def _lazy(named: Named) -> _Lazy:
    tensor = named.tensor
    spec = TensorSpec(shape=tuple(tensor.shape), dtype=str(tensor.dtype).removeprefix("torch."))
    if named.tuner is None:
        return _Lazy(named.name, spec, lambda: _whole(tensor))
    return _Lazy(named.name, spec, lambda: _merged(named))


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
    return Contents("lora", tuple(_lazy(Named(n, t)) for n, t in tensors.items()), config)


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
