"""Several envs in one run, by weight."""

from agentgym.envs.mixture.env import MixtureEnv
from agentgym.envs.mixture.tasks import MixedTasks

__all__ = ["MixedTasks", "MixtureEnv"]
