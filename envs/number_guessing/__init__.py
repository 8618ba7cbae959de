"""Find a hidden number from `higher` and `lower`."""

from agentgym.envs.number_guessing.env import NumberGuessingEnv
from agentgym.envs.number_guessing.oracle import oracle

__all__ = ["NumberGuessingEnv", "oracle"]
