"""Rewards to advantages: how much better a trajectory did than its group.

A group is known by its id, never by its position, so partial and shuffled groups are no special
case. A reward that is not finite is unscored: it is no evidence, enters no statistic, and its
trajectory gets advantage 0. Estimators only ever see scored rewards.

Units: rewards and advantages are plain numbers; [B] trajectories, [K] groups.
"""

from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Tensor

from agentgym.errors import ConfigError
from agentgym.registry import ADVANTAGES

Scale = Literal["group", "batch", "none"]
"""What a centred reward is divided by: the spread of its group, of the batch, or nothing."""

Estimator = Callable[..., Tensor]
"""`(rewards [M], *, groups [M], scale) -> [M]`: finite float64 rewards, groups numbered from 0."""

EPSILON = 1e-4
"""Added to every standard deviation, as in TRL."""

_SAME = 2.0**-23
"""Relative spread up to which the rewards of a group are equal: that of neighbouring float32."""


def compute_advantages(
    rewards: Tensor,
    group_ids: Sequence[object] | Tensor,
    *,
    estimator: str = "grpo",
    scale: Scale = "group",
) -> Tensor:
    """[B] advantages; 0.0 for the unscored, for groups of equal rewards or fewer than two scored.

    Args:
        rewards: [B]; NaN and infinities mean unscored.
        group_ids: [B] anything hashable, equal within a group.
        estimator: a name in `agentgym.registry.ADVANTAGES`.

    Raises:
        NotRegisteredError: no such estimator.
        ConfigError: there is not one group id per reward, or the estimator returned a value that
            is not finite.
    """
    groups = group_indices(group_ids)
    if rewards.shape != groups.shape:
        raise ConfigError(f"{rewards.numel()} rewards but {groups.numel()} group ids")
    groups = groups.to(rewards.device)
    scored = torch.isfinite(rewards)
    values, members = rewards[scored].double(), groups[scored]
    found = ADVANTAGES.get(estimator)(values, groups=members, scale=scale)
    found = found.masked_fill(~_has_spread(values, members)[members], 0.0)
    if not torch.isfinite(found).all():
        raise ConfigError(f"advantage estimator {estimator!r} returned a value that is not finite")
    advantages = torch.zeros_like(rewards, dtype=torch.float64)
    advantages[scored] = found
    return advantages.to(rewards.dtype if rewards.is_floating_point() else torch.float32)


def reward_statistics(rewards: Tensor, group_ids: Sequence[object] | Tensor) -> dict[str, float]:
    """What TRL logs of a window's rewards, over scored ones: NaN where there is nothing to average.

    Returns `reward`, `reward_std` (n-1, over the batch), `frac_reward_zero_std` (the share of
    groups that carry no signal: equal rewards, or fewer than two scored) and `num_unscored`.
    """
    groups = group_indices(group_ids).to(rewards.device)
    scored = torch.isfinite(rewards)
    values = rewards[scored].double()
    num_groups = int(groups.max()) + 1 if groups.numel() else 0
    signal = _has_spread(values, groups[scored], num_groups)
    return {
        "reward": values.mean().item() if len(values) else torch.nan,
        "reward_std": values.std().item() if len(values) > 1 else torch.nan,
        "frac_reward_zero_std": (~signal).double().mean().item() if num_groups else torch.nan,
        "num_unscored": float(len(rewards) - len(values)),
    }


def discounted_returns(token_rewards: Tensor, loss_mask: Tensor, *, gamma: float) -> Tensor:
    """[T] reward-to-go of one trajectory, discounted per sampled token.

    G_t = r_t + d_t G_{t+1} with d_t = gamma on tokens the policy sampled and 1 on all others:
    a long tool result does not make what the policy did before it worth less. The trainer has no
    use for it; an estimator of one's own may.

    Args:
        token_rewards: [T].
        loss_mask: [T] true on sampled tokens.
    """
    running = token_rewards.new_zeros(())
    returns = torch.empty_like(token_rewards)
    for t in range(len(token_rewards) - 1, -1, -1):
        running = token_rewards[t] + (gamma if loss_mask[t] else 1.0) * running
        returns[t] = running
    return returns


def group_indices(group_ids: Sequence[object] | Tensor) -> Tensor:
    """[B] int64 from 0, in order of first appearance."""
    ids: Sequence[object] = group_ids.tolist() if isinstance(group_ids, Tensor) else group_ids
    numbers: dict[object, int] = {}
    return torch.tensor([numbers.setdefault(i, len(numbers)) for i in ids], dtype=torch.int64)


def grpo(rewards: Tensor, *, groups: Tensor, scale: Scale) -> Tensor:
    """A = r - mean(group), over the standard deviation of the rewards (arXiv 2402.03300)."""
    return _centre(rewards, groups) / _divisor(rewards, groups, scale)


def rloo(rewards: Tensor, *, groups: Tensor, scale: Scale) -> Tensor:
    """A = r - mean of the others = n/(n-1) (r - mean(group)) (arXiv 2402.14740)."""
    count = torch.bincount(groups).to(rewards)[groups]
    others = count / (count - 1).clamp(min=1)
    return others * _centre(rewards, groups) / _divisor(rewards, groups, scale)


def reinforce_plus_plus(rewards: Tensor, *, groups: Tensor, scale: Scale) -> Tensor:
    """A = r - mean(group), over the standard deviation of A, not of r (arXiv 2501.03262)."""
    centred = _centre(rewards, groups)
    return centred / _divisor(centred, groups, scale)


def _centre(values: Tensor, groups: Tensor) -> Tensor:
    count = torch.bincount(groups).to(values).clamp(min=1)
    mean = torch.zeros_like(count).index_add(0, groups, values) / count
    return values - mean[groups]


def _divisor(values: Tensor, groups: Tensor, scale: Scale) -> Tensor:
    """[M] standard deviation with n-1, plus `EPSILON`; ones for `none`."""
    if scale == "none":
        return torch.ones_like(values)
    if scale == "batch":
        return torch.full_like(values, values.std().item() if len(values) > 1 else 0.0) + EPSILON
    if scale != "group":
        raise ConfigError(f"scale must be 'group', 'batch' or 'none', not {scale!r}")
    count = torch.bincount(groups).to(values)
    squares = torch.zeros_like(count).index_add(0, groups, _centre(values, groups).square())
    return (squares / (count - 1).clamp(min=1)).sqrt()[groups] + EPSILON


def _has_spread(values: Tensor, groups: Tensor, num_groups: int = 0) -> Tensor:
    """[K] True where the scored members of a group differ by more than rounding."""
    size = max(num_groups, int(groups.max()) + 1 if groups.numel() else 0)
    empty = values.new_zeros(size)
    high = empty.scatter_reduce(0, groups, values, "amax", include_self=False)
    low = empty.scatter_reduce(0, groups, values, "amin", include_self=False)
    return (high - low) > _SAME * torch.maximum(high.abs(), low.abs())


for _estimator in (grpo, rloo, reinforce_plus_plus):
    ADVANTAGES.register(_estimator.__name__, _estimator)
