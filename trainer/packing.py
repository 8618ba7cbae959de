"""Trajectories to rows the model computes: no padding worth mentioning, shared prompts once.

A row holds trees. A tree is a prompt and the trajectories that continue it; each attends to the
prompt and to itself, and its positions go on where the prompt ends, so every token sees what it
would see in a row of its own. Which tokens are scored travels as flat indices beside the rows.

Units: tokens. [R, T] rows, [N] trained tokens, [S] sequences of the micro-batch.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Sample:
    """One trajectory to train on.

    Raises:
        ValueError: the lists differ in length, or the first token is to be trained although
            nothing predicts it.
    """

    ids: Sequence[int]
    """[T] every token."""
    mask: Sequence[bool]
    """[T] True on trained tokens."""
    logprobs: Sequence[float]
    """[T] of the sampler, in nats; ignored where the mask is False."""
    advantage: float
    group: str | int
    """Only samples of one group share a prompt."""
    index: int
    """The caller's number for this sample; comes back in `PackedBatch.sample_indices`."""

    @property
    def prompt_len(self) -> int:
        """Tokens before the first trained one: what may be shared."""
        raise NotImplementedError

    @property
    def num_trained(self) -> int:
        return sum(self.mask)


@dataclass(frozen=True)
class PackedBatch:
    """One micro-batch."""

    input_ids: Tensor
    """[R, T] int64."""
    position_ids: Tensor
    """[R, T] int64: the position within the trajectory."""
    tree_ids: Tensor
    """[R, T] int32: tree of the row; -1 is padding."""
    branch_ids: Tensor
    """[R, T] int32: 0 for the shared prompt, else the trajectory within the tree."""
    rows: Tensor
    """[N] int64: row of the logit that predicts the trained token."""
    columns: Tensor
    """[N] int64: its column, that of the token before."""
    targets: Tensor
    """[N] int64: the trained token."""
    sequence_ids: Tensor
    """[N] int64 in 0..S-1."""
    advantages: Tensor
    """[N] float32."""
    old_logprobs: Tensor
    """[N] float32: the sampler's."""
    sample_indices: Tensor
    """[S] int64: `Sample.index` of each sequence."""
    is_packed: bool
    """False if every row is one plain right-padded sequence."""

    @property
    def num_tokens(self) -> int:
        """Trained tokens."""
        return self.targets.numel()

    @property
    def num_sequences(self) -> int:
        return self.sample_indices.numel()

    def attention_mask(self) -> Tensor:
        """[R, 1, T, T] bool, True where a query may look; [R, T] int64 if not `is_packed`."""
        raise NotImplementedError

    def to(self, device: str) -> "PackedBatch":
        raise NotImplementedError


def pack(
    samples: Sequence[Sample], *, token_budget: int, share_prompts: bool = True
) -> list[PackedBatch]:
    """Micro-batches of at most `token_budget` input tokens, padding included.

    A sample longer than the budget gets a micro-batch of its own. Samples without a trained token
    are left out: they add nothing to the loss.
    """
    raise NotImplementedError


def padded(samples: Sequence[Sample], *, token_budget: int) -> list[PackedBatch]:
    """The plain way: one sample per row, right-padded, ordered by length."""
    raise NotImplementedError


def empty_batch() -> PackedBatch:
    """One input token and nothing to train: what a rank computes while others still have work."""
    raise NotImplementedError
