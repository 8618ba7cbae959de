"""A reward, an advantage estimator and a loss of your own, as a plugin file.

    agentgym train --plugins examples/04_custom_reward_and_loss.py \
        --rewards one_number --advantage-estimator ranks --loss-type reinforce

Each is a plain function. Rewards see a whole trajectory; estimators see rewards and group numbers;
losses see the trained tokens of a micro-batch, and how many the whole optimizer step has.
"""

import re

import torch
from torch import Tensor

from agentgym.registry import ADVANTAGES, LOSSES, REWARDS
from agentgym.trainer.losses import FlatTokens, LossOutput, LossSettings, Normalizer, token_mean
from agentgym.trajectory import RolloutOutput


@REWARDS.register("one_number")
def one_number(output: RolloutOutput) -> float | None:
    """1 if the last message names exactly one number; unscored if the policy did not get that far.

    Its weight is 1 unless `--reward-weights` says otherwise.
    """
    last = output.messages[-1]
    if last.role != "assistant":
        return None
    return float(len(re.findall(r"-?\d+(?:\.\d+)?", last.content)) == 1)


@ADVANTAGES.register("ranks")
def ranks(rewards: Tensor, *, groups: Tensor, scale: str) -> Tensor:
    """Share of its group a trajectory beats, minus the share that beats it: only order counts."""
    same = groups[:, None] == groups[None, :]
    beats = torch.sign(rewards[:, None] - rewards[None, :])
    return (beats * same).sum(dim=1) / same.sum(dim=1)


@LOSSES.register("reinforce")
def reinforce(tokens: FlatTokens, settings: LossSettings, normalizer: Normalizer) -> LossOutput:
    """-A log p, averaged over the tokens of the step: no ratio, no clipping (Williams 1992)."""
    loss = token_mean(-tokens.advantages * tokens.logprobs, normalizer)
    return LossOutput(loss, num_tokens=tokens.logprobs.numel())
