"""Mathematics with verified answers."""

from agentgym.envs.maths.env import MathsEnv
from agentgym.envs.maths.oracle import oracle

__all__ = ["MathsEnv", "oracle"]
