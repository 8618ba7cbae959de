"""Environments: Gymnasium's API over messages, for policies that talk and call tools."""

if __name__ != "agentgym.envs":
    raise ImportError("import agentgym.envs, not envs: this folder is a part of agentgym")

from agentgym.envs.base import Env, TaskSet
from agentgym.envs.tool_env import Episode, ToolEnv
from agentgym.trajectory import Task

__all__ = ["Env", "Episode", "Task", "TaskSet", "ToolEnv"]
