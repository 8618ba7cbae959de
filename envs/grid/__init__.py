"""A frozen lake in text."""

from agentgym.envs.grid.env import GridEnv
from agentgym.envs.grid.oracle import oracle

__all__ = ["GridEnv", "oracle"]
