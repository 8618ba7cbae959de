"""Models that are nothing but tensors by name, one trained and one in an engine.

What is sent, how it is staged and what is refused is the product's; an adapter is one of PEFT's.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import torch
from torch import nn

from agentgym.engines.transformers.copying import WholeTensors
from agentgym.engines.weights import Bucket, Weights
from agentgym.errors import EngineError

Shape = tuple[int, ...]
_LORA = (".lora_A.", ".lora_B.")
_BASE = ".base_layer."
_SIZE = 2


class TensorEngine:
    """An engine without a forward pass.

    Args:
        model: its tensors.
        fails_after: buckets after which the way of an update breaks.
    """

    keeps_weights: Literal[True] = True
    copies_model: Literal[True] = True
    is_shared = False
    max_context = 1
    policy_version = 0

    def __init__(self, model: nn.Module, *, fails_after: int | None = None) -> None:
        self.tensors = WholeTensors(model)
        self._fails_after = fails_after

    async def update_weights(self, weights: Weights | None = None) -> int:
        assert weights is not None
        self.tensors.swap(self.tensors.stage(_Cut(weights, self._fails_after)))
        self.policy_version = weights.version
        return weights.version

    async def follow(self, version: int) -> None:
        """It has no other process."""

    @property
    def changed(self) -> list[str]:
        """Names of tensors that are no longer 0."""
        return [name for name, tensor in self.tensors.by_name.items() if bool(tensor.any())]


class _Cut:
    """Weights that may not all arrive."""

    def __init__(self, weights: Weights, after: int | None) -> None:
        self._weights = weights
        self._after = after
        self.version, self.kind = weights.version, weights.kind
        self.specs, self.lora_config = weights.specs, weights.lora_config

    def buckets(self) -> Iterator[Bucket]:
        for number, bucket in enumerate(self._weights.buckets()):
            if number == self._after:
                raise EngineError(f"the update was cut after {number} buckets")
            yield bucket


def shapes_of(given: Any, *, as_in: Mapping[str, Shape] | None = None) -> dict[str, Shape]:
    """A list of names, or a mapping to shapes.

    Args:
        given: the names.
        as_in: tensors of the trained model; where it has an adapter, all of a list are matrices.
    """
    if isinstance(given, Mapping):
        return {name: tuple(given[name]) for name in dict.keys(given)}
    has_adapter = any(part in name for name in as_in or () for part in _LORA)
    is_matrix = has_adapter and bool(_adapted(as_in or {}))
    return dict.fromkeys(given, (_SIZE, _SIZE) if is_matrix else (_SIZE,))


def module_of(
    shapes: Mapping[str, Shape],
    *,
    value: float = 1.0,
    values: Mapping[str, float] | None = None,
    tied: Sequence[Sequence[str]] = (),
) -> nn.Module:
    """A module with a parameter under every name, or one with an adapter where names tell of one.

    Args:
        shapes: by name.
        value: of every number.
        values: of those of some tensors.
        tied: names of one tensor each.
    """
    if any(part in name for name in shapes for part in _LORA) and _adapted(shapes):
        return _with_adapter(shapes)
    root = nn.Module()
    for name, shape in shapes.items():
        number = float((values or {}).get(name, value))
        _put(root, name, nn.Parameter(torch.full(shape, number)))
    for first, *others in tied:
        for other in others:
            _put(root, other, root.get_parameter(first))
    return root


def _put(root: nn.Module, name: str, parameter: nn.Parameter) -> None:
    *path, last = name.split(".")
    owner = root
    for part in path:
        if part not in dict(owner.named_children()):
            owner.add_module(part, nn.Module())
        owner = owner.get_submodule(part)
    owner.register_parameter(last, parameter)


def _adapted(shapes: Mapping[str, Shape]) -> list[str]:
    """Layers with an adapter, as they are called without one."""
    return [_plain(n).rpartition(".")[0] for n in shapes if _BASE in n]


def _plain(name: str) -> str:
    return name.removeprefix("base_model.model.").replace(_BASE, ".")


def _with_adapter(shapes: Mapping[str, Shape]) -> nn.Module:
    """What PEFT makes of a model of linear layers; both halves of the adapter are not 0."""
    from peft import LoraConfig, get_peft_model

    root, targets = nn.Module(), _adapted(shapes)
    for name in shapes:
        if not any(part in name for part in _LORA):
            _put(root, _plain(name), nn.Parameter(torch.ones(_SIZE, _SIZE)))
    for target in targets:
        parent, _, last = target.rpartition(".")
        linear = nn.Linear(_SIZE, _SIZE, bias=False)
        nn.init.ones_(linear.weight)
        root.get_submodule(parent).add_module(last, linear)
    config = LoraConfig(r=1, lora_alpha=1, target_modules=targets)
    model: Any = get_peft_model(root, config)  # type: ignore[arg-type]
    for name, parameter in model.named_parameters():
        if any(part in f"{name}." for part in _LORA):
            nn.init.ones_(parameter)
    trained: nn.Module = model
    return trained
