"""Envs that leave something behind, change their process, or cannot be closed."""

import asyncio
import os
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import Any

from agentgym_broken_sound import Sound

from agentgym.envs import Env, Task, TaskSet
from agentgym.messages import Message, assistant

KEPT: list[Any] = []
"""What must not be freed by accident."""
DATA = Path(__file__).parents[1] / "broken_envs.py"


class LeaksThread(Sound):
    """Starts a thread for every episode and never ends it."""

    def prompt(self, task: Task) -> str | list[Message]:
        threading.Thread(target=threading.Event().wait, daemon=True).start()
        return super().prompt(task)


class KeepsTheProcess(LeaksThread):
    """The same with a thread that Python waits for at its exit."""

    def prompt(self, task: Task) -> str | list[Message]:
        if os.environ.get("AGENTGYM_MAY_HANG"):
            threading.Thread(target=threading.Event().wait, daemon=False).start()
        return Sound.prompt(self, task)


class LeaksFile(Sound):
    """Opens its data for every episode and never closes it."""

    def prompt(self, task: Task) -> str | list[Message]:
        KEPT.append(DATA.open())
        return super().prompt(task)


class LeaksProcess(Sound):
    """Starts a server for every episode and never ends it."""

    def prompt(self, task: Task) -> str | list[Message]:
        KEPT.append(subprocess.Popen(["sleep", "20"]))
        return super().prompt(task)


class CloseRaises(Sound):
    """Closes what `reset` opened, also where there was no reset."""

    def prompt(self, task: Task) -> str | list[Message]:
        self.opened = [task]
        return super().prompt(task)

    def close(self) -> None:
        self.opened.pop()


class CloseTwiceRaises(Sound):
    """Its close is set after the class is made, so that nothing guards it."""


async def _close(self: Sound) -> None:
    if "closed" in vars(self):
        raise ValueError("closed already")
    vars(self)["closed"] = True


CloseTwiceRaises.aclose = _close  # type: ignore[method-assign]
CloseTwiceRaises.close = lambda self: None  # type: ignore[method-assign]


class LeaksTask(Env):
    """Starts a heartbeat for every episode and never ends it."""

    def tasks(self, split: str = "train") -> TaskSet:
        return TaskSet.procedural(lambda index: Task(id=f"{split}-{index}"))

    async def areset(self, *, seed: int | None = None, options: Any = None) -> Any:
        KEPT.append(asyncio.create_task(asyncio.sleep(3600)))
        return "say yes", {}

    async def astep(self, action: Any) -> Any:
        return [], float(action.content == "yes"), True, False, {}

    def oracle(self, task: Task, messages: list[Message]) -> Message:
        return assistant("yes")


class ChangesProcess(Sound):
    """Sets a variable of the whole process."""

    def prompt(self, task: Task) -> str | list[Message]:
        os.environ["BROKEN_ENVS_TASK"] = task.id
        return super().prompt(task)


class LeavesFiles(Sound):
    """Works in a temporary folder that it never removes."""

    def prompt(self, task: Task) -> str | list[Message]:
        Path(tempfile.mkdtemp(prefix="broken")).joinpath("x").write_text(task.id)
        return super().prompt(task)


class KeepsEnvs(Sound):
    """Registers every env in a list, which keeps them all."""

    def prompt(self, task: Task) -> str | list[Message]:
        KEPT.append(self)
        return super().prompt(task)


class Prints(Sound):
    """Tells the terminal what it does."""

    def prompt(self, task: Task) -> str | list[Message]:
        print("playing", task.id)
        return super().prompt(task)
