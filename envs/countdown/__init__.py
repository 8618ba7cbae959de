"""Reach a target from given numbers."""

from agentgym.envs.countdown.env import CountdownEnv
from agentgym.envs.countdown.oracle import oracle

__all__ = ["CountdownEnv", "oracle"]
