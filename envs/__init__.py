"""Environments: Gymnasium's API over messages, for policies that talk and call tools."""

if __name__ != "agentgym.envs":
    raise ImportError("import agentgym.envs, not envs: this folder is a part of agentgym")

from agentgym.envs.base import Env, TaskSet
from agentgym.envs.registration import FAMILIES, make, names, register, register_family, spec
from agentgym.envs.text_env import TextEnv, TextStep
from agentgym.envs.tool_env import Episode, ToolEnv
from agentgym.envs.wrappers import SystemPrompt, TurnLimit, Wrapper
from agentgym.trajectory import Task

register("Calculator-v0", "agentgym.envs.calculator:CalculatorEnv")
register("Code-v0", "agentgym.envs.code:CodeEnv")
register("Countdown-v0", "agentgym.envs.countdown:CountdownEnv")
register("Grid-v0", "agentgym.envs.grid:GridEnv")
register("Lookup-v0", "agentgym.envs.lookup:LookupEnv")
register("Maths-v0", "agentgym.envs.maths:MathsEnv")
register("Mixture-v0", "agentgym.envs.mixture:MixtureEnv")
register("NumberGuessing-v0", "agentgym.envs.number_guessing:NumberGuessingEnv")
register("Shop-v0", "agentgym.envs.shop:ShopEnv")
register("WordGuessing-v0", "agentgym.envs.word_guessing:WordGuessingEnv")

register_family(
    "reasoning-gym",
    "agentgym.envs.adapters.reasoning_gym:ReasoningGymEnv",
    "every data set of reasoning-gym, such as reasoning-gym/leg_counting",
)
register_family(
    "textarena",
    "agentgym.envs.adapters.textarena:TextArenaEnv",
    "single-player games of TextArena, such as textarena/Sudoku-v0",
)
register_family(
    "gymnasium",
    "agentgym.envs.adapters.gymnasium_text:GymnasiumTextEnv",
    "Gymnasium's own envs of text and discrete spaces, such as gymnasium/FrozenLake-v1",
)
register_family(
    "openenv",
    "agentgym.envs.adapters.openenv:OpenEnvEnv",
    'any OpenEnv server: --env openenv --env-args \'{"url": "http://localhost:8000"}\'',
)
register_family(
    "harbor",
    "agentgym.envs.adapters.harbor:HarborEnv",
    'task directories of Harbor: --env harbor --env-args \'{"path": "tasks/"}\'',
)

__all__ = [
    "FAMILIES",
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
    "register_family",
    "spec",
]
