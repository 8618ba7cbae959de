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
register("Countdown-v0", "agentgym.envs.countdown:CountdownEnv")
register("Grid-v0", "agentgym.envs.grid:GridEnv")
register("Lookup-v0", "agentgym.envs.lookup:LookupEnv")
register("NumberGuessing-v0", "agentgym.envs.number_guessing:NumberGuessingEnv")
register("WordGuessing-v0", "agentgym.envs.word_guessing:WordGuessingEnv")

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
