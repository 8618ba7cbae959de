"""One window: trajectories that were played at once, and the optimizer steps that consume them.

The plan is fixed when the window is made: every part's micro-batches, equally many on every rank,
and the counts its loss is divided by. Trajectories are used exactly `num_iterations` times, which
is counted and asserted.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from torch import Tensor

from agentgym.tokens import flat_ids, flat_logprobs, flat_mask
from agentgym.trainer.losses import Normalizer
from agentgym.trainer.packing import PackedBatch, Sample, empty_batch, pack, padded
from agentgym.trainer.ranks import Ranks
from agentgym.trajectory import RolloutOutput, StopReason

TRUNCATED = frozenset(
    {
        StopReason.TRUNCATED,
        StopReason.MAX_TURNS,
        StopReason.MAX_TOOL_CALLS,
        StopReason.MAX_TIME,
        StopReason.LENGTH,
        StopReason.CONTEXT_OVERFLOW,
    }
)
"""A limit cut the trajectory."""


@dataclass(frozen=True, kw_only=True)
class PlanSettings:
    """How trajectories become micro-batches."""

    num_parts: int
    """Optimizer steps in one pass over the window."""
    num_iterations: int
    """Passes."""
    token_budget: int
    share_prompts: bool = True
    padding: bool = False
    """The plain way: one trajectory per row."""
    keep_whole: bool = True
    """Never part the traces of a trajectory: the loss wants to see all of it."""
    mask_truncated: bool = False
    """What a limit cut is not trained and not counted."""
    skip_zero_advantage: bool = True
    """No forward pass where the loss has no gradient; it is counted all the same."""


@dataclass
class MicroBatch:
    """What is computed at once, and what was computed about it earlier in the window."""

    batch: PackedBatch
    old_logprobs: Tensor | None = None
    """[N] under the policy that played the window."""
    ref_logprobs: Tensor | None = None
    """[N] under the reference."""
    is_measured: bool = False
    """Whether the sampler's distance from the trainer was told."""


@dataclass(frozen=True)
class Part:
    """The data of one optimizer step, on this rank."""

    micro_batches: list[MicroBatch]
    """Equally many on every rank."""
    normalizer: Normalizer
    """Over all ranks."""
    members: tuple[int, ...]
    """Trajectories of the window that this part consumes."""

    @property
    def is_empty(self) -> bool:
        """True if no rank has a trained token: the optimizer must not step."""
        return self.normalizer.num_tokens == 0


@dataclass
class Window:
    """Trajectories of this rank and the parts they are consumed in."""

    outputs: list[RolloutOutput]
    advantages: list[float]
    parts: list[Part]
    num_iterations: int
    consumed: Counter[int] = field(default_factory=Counter)
    """By position in `outputs`: how often it was trained on."""

    @property
    def num_steps(self) -> int:
        """Optimizer steps this window feeds."""
        return len(self.parts) * self.num_iterations

    def take(self, step: int) -> Part:
        """The data of the window's optimizer step `step`, from 0.

        Raises:
            AssertionError: the window's last step finds a trajectory used too often or too rarely.
        """
        part = self.parts[step % len(self.parts)]
        self.consumed.update(part.members)
        if step == self.num_steps - 1:
            uses = {self.consumed[i] for i in range(len(self.outputs))}
            assert uses == {self.num_iterations}, f"trajectories were used {sorted(uses)} times"
        return part


class _Local(NamedTuple):
    members: tuple[int, ...]
    batches: list[PackedBatch]
    counts: Normalizer


class PartCounts(NamedTuple):
    """What one rank tells the others about its share of an optimizer step."""

    tokens: int
    sequences: int
    batches: int


def make_window(
    outputs: Sequence[RolloutOutput],
    advantages: Sequence[float],
    settings: PlanSettings,
    ranks: Ranks,
) -> Window:
    """Plan a window; collective.

    Args:
        outputs: this rank's trajectories, group after group.
        advantages: one for each.
    """
    local = [
        _plan(members, outputs, advantages, settings)
        for members in _split(len(outputs), settings.num_parts)
    ]
    counts = [
        PartCounts(p.counts.num_tokens, p.counts.num_sequences, len(p.batches)) for p in local
    ]
    everywhere = ranks.gather(counts)
    parts = [
        _equalised(part, [counts[index] for counts in everywhere])
        for index, part in enumerate(local)
    ]
    return Window(list(outputs), list(advantages), parts, settings.num_iterations)


def _split(count: int, num_parts: int) -> list[tuple[int, ...]]:
    size, rest = divmod(count, num_parts)
    assert not rest, f"{count} trajectories do not make {num_parts} equal optimizer steps"
    return [tuple(range(part * size, (part + 1) * size)) for part in range(num_parts)]


def _plan(
    members: tuple[int, ...],
    outputs: Sequence[RolloutOutput],
    advantages: Sequence[float],
    settings: PlanSettings,
) -> _Local:
    trained = [i for i in members if is_trained(outputs[i], mask_truncated=settings.mask_truncated)]
    samples = [sample for i in trained for sample in samples_of(outputs[i], advantages[i], i)]
    counts = Normalizer(sum(s.num_trained for s in samples), len(trained))
    if settings.skip_zero_advantage:
        samples = [sample for sample in samples if sample.advantage != 0.0]
    return _Local(members, _batches(samples, settings), counts)


def _batches(samples: list[Sample], settings: PlanSettings) -> list[PackedBatch]:
    budget, whole = settings.token_budget, settings.keep_whole
    if settings.padding:
        return padded(samples, token_budget=budget, keep_whole=whole)
    share = settings.share_prompts
    return pack(samples, token_budget=budget, share_prompts=share, keep_whole=whole)


def _equalised(part: _Local, counts: list[PartCounts]) -> Part:
    """Pad with empty micro-batches; a step whose tokens all have advantage 0 still is a step."""
    tokens = sum(count.tokens for count in counts)
    longest = max(count.batches for count in counts)
    num_batches = max(longest, 1) if tokens else 0
    batches = part.batches + [empty_batch()] * (num_batches - len(part.batches))
    normalizer = Normalizer(tokens, sum(count.sequences for count in counts))
    return Part([MicroBatch(batch) for batch in batches], normalizer, part.members)


def is_trained(output: RolloutOutput, *, mask_truncated: bool) -> bool:
    """Whether a trajectory is evidence about the policy and has tokens to train."""
    if mask_truncated and output.stop_reason in TRUNCATED:
        return False
    return output.is_scored and bool(output.sampled)


def samples_of(output: RolloutOutput, advantage: float, index: int) -> list[Sample]:
    """What is trained of a trajectory: one sample for each trace that trains a token.

    All of them carry the trajectory's advantage, and the loss counts them as one sequence.
    """
    size = sum(len(segment.ids) for segment in output.sampled)
    return [
        Sample(
            ids=flat_ids(trace),
            mask=flat_mask(trace),
            logprobs=flat_logprobs(trace),
            advantage=advantage,
            group=output.group_id,
            index=index,
            sequence_size=size,
        )
        for trace in output.traces
        if any(segment.is_trained for segment in trace)
    ]
