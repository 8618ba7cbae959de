"""Envs that hang, raise, or return and offer what no loop can use."""

import asyncio
import time
from dataclasses import replace
from typing import Any

import numpy as np
from agentgym_broken_sound import Sound, Talks, add

from agentgym.envs import Env, Task
from agentgym.errors import EnvError
from agentgym.tools import tool


class Hangs(Talks):
    """Waits for a server that never answers."""

    def step(self, action: Any) -> Any:
        time.sleep(3600)


class BlocksTheLoop(Env):
    """Waits in async code as if it were sync."""

    async def areset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return "go", {}

    async def astep(self, action: Any) -> Any:
        time.sleep(3600)  # noqa: ASYNC251


class NoText(Talks):
    """Observes a number."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed, options=options)
        return 42, {}


class Cancels(Talks):
    """Lets a cancellation of its own out."""

    async def astep(self, action: Any) -> Any:
        raise asyncio.CancelledError


class HangsInClose(Talks):
    """Waits for a server that never says goodbye."""

    def close(self) -> None:
        time.sleep(3600)


class Silent(Talks):
    """Goes on without a word."""

    def step(self, action: Any) -> Any:
        if action.content == str(self.task["answer"]):
            return [], 1.0, True, False, {}
        return [], 0.0, False, False, {}


class BadSchema(Sound):
    """Its schema was written by hand."""

    tools = (replace(add, parameters={"type": "object", "properties": {"x": {"type": "int"}}}),)


class WrongSchema(Sound):
    """Its schema asks for other arguments than the function takes."""

    tools = (
        replace(
            add,
            parameters={
                "type": "object",
                "properties": {"a": {"type": "integer", "description": "A number."}},
                "required": ["a"],
            },
        ),
    )


class SameToolNames(Sound):
    """Two tools, one name."""

    tools = (add, tool(name="add")(lambda: 1))


class NumpyEnd(Talks):
    """Computes its end with NumPy."""

    def step(self, action: Any) -> Any:
        reward = float(action.content == str(self.task["answer"]))
        return [], reward, np.bool_(True), False, {}


class Exits(Sound):
    """Ends the process when its data are missing."""

    def prompt(self, task: Task) -> str:
        raise SystemExit("no data")


class CannotReset(Sound):
    """Fails at once."""

    def prompt(self, task: Task) -> str:
        raise EnvError("the data set is empty")


class BadReport(Sound):
    """Reports what JSON cannot say."""

    async def areset(self, *, seed: int | None = None, options: Any = None) -> Any:
        observation, info = await super().areset(seed=seed, options=options)
        return observation, {**info, "report": {"seen": {1, 2}}}
