"""Customer service with a database and rules."""

from agentgym.envs.shop.env import ShopEnv
from agentgym.envs.shop.oracle import oracle

__all__ = ["ShopEnv", "oracle"]
