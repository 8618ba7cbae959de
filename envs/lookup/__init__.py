"""Follow a chain of keys and values with a look-up tool."""

from agentgym.envs.lookup.env import LookupEnv
from agentgym.envs.lookup.oracle import oracle

__all__ = ["LookupEnv", "oracle"]
