"""Environments: Gymnasium's API over messages, for policies that talk and call tools."""

if __name__ != "agentgym.envs":
    raise ImportError("import agentgym.envs, not envs: this folder is a part of agentgym")

from agentgym.envs.base import Env, TaskSet
from agentgym.envs.registration import make, names, register, spec
from agentgym.envs.text_env import TextEnv, TextStep
from agentgym.envs.tool_env import Episode, ToolEnv
from agentgym.envs.wrappers import SystemPrompt, TurnLimit, Wrapper
from agentgym.trajectory import Task

register("Calculator-v0", "agentgym.envs.calculator:CalculatorEnv")

__all__ = [
    "Env",
    "Episode",
    "SystemPrompt",
    "Task",
    "TaskSet",
    "TextEnv",
    "TextStep",
    "ToolEnv",
    "TurnLimit",
    "Wrapper",
    "make",
    "names",
    "register",
    "spec",
]
