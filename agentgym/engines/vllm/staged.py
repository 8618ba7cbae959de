"""Weights that have arrived but do not serve yet.

Everything that can be wrong with an update is found here, before the model is touched.
"""

from collections.abc import Callable, Iterable, Mapping

import torch

from agentgym.engines.vllm.refusals import WeightsRefusedError
from agentgym.engines.weights import TensorSpec

Digest = tuple[int, int]
_WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_AT_ONCE = 1 << 22
"""Numbers that are added up in 64 bits at a time."""


class Staging:
    """One update, bucket by bucket.

    Args:
        expected: every tensor of the checkpoint.
        dtype: what the engine computes in; values must be finite in it.
    """

    def __init__(self, expected: Mapping[str, TensorSpec], dtype: torch.dtype) -> None:
        self.tensors: dict[str, torch.Tensor] = {}
        self.digests: dict[str, Digest] = {}
        """Checksums of the values in `dtype`."""
        self._expected = expected
        self._dtype = dtype

    def add(self, bucket: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Take some of the tensors; they must stay as they are until the update is over.

        Raises:
            WeightsRefusedError: they are not the model's; none of them is taken.
        """
        pairs = list(bucket)
        self._refuse("no such tensor in the model", pairs, lambda n, _: n not in self._expected)
        self._refuse("sent twice", pairs, lambda n, _: n in self.tensors)
        wrong = [
            f"{name} is {_shown(tensor)}, the model's {_spec_shown(self._expected[name])}"
            for name, tensor in pairs
            if not _fits(tensor, self._expected[name])
        ]
        if wrong:
            raise WeightsRefusedError("wrong shape or dtype", wrong)
        cast = [(name, tensor.detach().to(self._dtype)) for name, tensor in _floating(pairs)]
        self._refuse("values that are not finite", cast, lambda _, t: not _is_finite(t))
        self.tensors.update(pairs)
        self.digests.update((name, digest(tensor)) for name, tensor in cast)

    def to_host(self) -> None:
        """Move what has been taken to the host's memory; what is there stays as it is."""
        self.tensors = {name: tensor.cpu() for name, tensor in self.tensors.items()}

    def complete(self) -> dict[str, torch.Tensor]:
        """All tensors, in the order of the checkpoint.

        Raises:
            WeightsRefusedError: some did not come.
        """
        missing = self._expected.keys() - self.tensors.keys()
        if missing:
            raise WeightsRefusedError("missing", missing)
        return {name: self.tensors[name] for name in self._expected}

    def _refuse(
        self,
        problem: str,
        pairs: list[tuple[str, torch.Tensor]],
        is_wrong: Callable[[str, torch.Tensor], bool],
    ) -> None:
        wrong = [name for name, tensor in pairs if is_wrong(name, tensor)]
        if wrong:
            raise WeightsRefusedError(problem, wrong)


def digest(tensor: torch.Tensor) -> Digest:
    """A checksum of a tensor's bytes, the same on every device, where the tensor is.

    Sum and sum of squares of its bits as numbers, which wrap around: order does not count, and
    nothing is rounded.
    """
    flat = tensor.detach().contiguous().reshape(-1)
    words = flat.view(_WORDS[flat.element_size()])
    total = torch.zeros(2, dtype=torch.int64, device=flat.device)
    for part in torch.split(words, _AT_ONCE):
        wide = part.long()
        total += torch.stack([wide.sum(), (wide * wide).sum()])
    first, second = total.tolist()
    return first, second


def _floating(pairs: list[tuple[str, torch.Tensor]]) -> list[tuple[str, torch.Tensor]]:
    return [(name, tensor) for name, tensor in pairs if tensor.is_floating_point()]


def _is_finite(tensor: torch.Tensor) -> bool:
    return bool(torch.isfinite(tensor).all())


def _fits(tensor: torch.Tensor, spec: TensorSpec) -> bool:
    kinds_agree = tensor.is_floating_point() == spec.dtype.startswith(("float", "bfloat"))
    return tuple(tensor.shape) == spec.shape and kinds_agree


def _shown(tensor: torch.Tensor) -> str:
    return f"{list(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}"


def _spec_shown(spec: TensorSpec) -> str:
    return f"{list(spec.shape)} {spec.dtype}"
