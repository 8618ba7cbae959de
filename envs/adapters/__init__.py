"""Environments of other libraries, played through this one; each needs an extra of its own.

Nothing here is imported before one of them is asked for (see `agentgym.envs.register_family`).
"""
