"""What tests read off a trainer: its weights and its log."""

import torch

from agentgym.trainer.grpo import AgentGRPOTrainer


def weights(trainer: AgentGRPOTrainer) -> torch.Tensor:
    """[P] a copy of all parameters."""
    return torch.cat([p.detach().flatten() for p in trainer.policy.parameters()]).clone()


def steps(trainer: AgentGRPOTrainer) -> list[dict[str, float]]:
    """The log of every optimizer step."""
    return [row for row in trainer.state.log_history if "step_time" in row]
