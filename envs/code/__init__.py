"""Programming tasks: programs are run in a sandbox, and what they give is compared outside."""

from agentgym.envs.code.env import CodeEnv

__all__ = ["CodeEnv"]
