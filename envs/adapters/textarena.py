"""TextArena's games for one player, each episode in a process of its own.

The games draw from Python's global generator, so two in one process would change each other's
course; in a process of its own a game is what its seed says, and one that hangs is ended.
"""

import json
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from typing import Any

from agentgym.envs.adapters.process import VARIABLES, HostError, HostProcess
from agentgym.envs.base import Env, Info, ResetResult, StepResult
from agentgym.envs.taskset import TaskSet
from agentgym.errors import ConfigError, EnvError, MissingExtraError, NotRegisteredError
from agentgym.messages import Message, user
from agentgym.threads import in_thread
from agentgym.trajectory import StopReason, Task

_SPLITS = ("train", "eval")
_START_S = 120.0


class TextArenaEnv(Env):
    """A game of TextArena; reward `score`, the game's own, usually from -1 to 1.

    Args:
        name: of the game, such as `Sudoku-v0-easy`.
        options: of the game, over those of its name.
        reset_timeout_s: longest a game may take to begin.
        step_timeout_s: longest it may take over a move.

    Raises:
        NotRegisteredError: there is no such game for one player.
        ConfigError: it cannot be built here, such as for want of a word list.
        MissingExtraError: TextArena is not installed.
    """

    reward_range = (-1.0, 1.0)

    def __init__(
        self,
        name: str = "",
        *,
        options: Mapping[str, Any] | None = None,
        reset_timeout_s: float = 60.0,
        step_timeout_s: float = 30.0,
    ) -> None:
        self.name = name
        self.options = dict(options or {})
        self.reset_timeout_s = reset_timeout_s
        self.step_timeout_s = step_timeout_s
        self._host = _host()
        _check(name, json.dumps(self.options, sort_keys=True))

    def tasks(self, split: str = "train") -> TaskSet:
        """Endless games by index: even numbers to train on, odd ones held out.

        Raises:
            ConfigError: the split is neither "train" nor "eval".
        """
        if split not in _SPLITS:
            raise ConfigError(f"split must be one of {list(_SPLITS)}, got {split!r}")
        parity = _SPLITS.index(split)
        return TaskSet.procedural(
            lambda index: Task(id=f"{split}-{index}", data={"game": 2 * index + parity})
        )

    async def areset(self, *, seed: int | None = None, options: Info | None = None) -> ResetResult:
        """Begin the game of a task; its number is the seed."""
        task = self.pick_task(options)
        arguments = {"name": self.name, "options": self.options, "seed": task["game"]}
        text = await self._call("reset", arguments, self.reset_timeout_s)
        return [user(text)], {"task_id": task.id}

    async def astep(self, action: Any) -> StepResult:
        """Play the text of a message as a move."""
        assert isinstance(action, Message)
        answer = await self._call("step", {"text": action.content}, self.step_timeout_s)
        if not answer["done"]:
            return [user(answer["text"])], 0.0, False, False, {}
        reward = answer["reward"]
        info: Info = {
            "rewards": {"score": reward},
            "stop_reason": StopReason.TERMINATED.value,
            "report": {key: answer[key] for key in ("text", "is_invalid", "num_moves")},
        }
        return [], float(reward or 0.0), True, False, info

    async def acut(self) -> dict[str, float | None]:
        """A game that is not over has no score, and a policy that did not end it earns nothing."""
        return {"score": 0.0} if self.end_episode() else {}

    async def aclose(self) -> None:
        """End the game's process."""
        await in_thread(self._host.kill)

    async def _call(self, method: str, arguments: dict[str, Any], timeout_s: float) -> Any:
        def call() -> Any:
            begun = method != "reset"
            return self._host.call(method, arguments, timeout_s=timeout_s, goes_on=begun)

        try:
            return await in_thread(call)
        except HostError as error:
            raise EnvError(f"textarena/{self.name}: {method}: {error}") from error


def _host() -> HostProcess:
    return HostProcess("textarena", variables=VARIABLES | {"NLTK_DATA", "OPENROUTER_API_KEY"})


@cache
def known_names() -> tuple[str, ...]:
    """Every game for one player; not all can be built everywhere.

    Raises:
        MissingExtraError: TextArena is not installed.
    """
    if find_spec("textarena") is None:
        raise MissingExtraError("TextArena", "textarena")
    host = _host()
    try:
        return tuple(sorted(host.call("names", {}, timeout_s=_START_S)))
    finally:
        host.kill()


@cache
def _check(name: str, options: str) -> None:
    if name not in known_names():
        raise NotRegisteredError("single-player game of TextArena", name, known_names())
    host = _host()
    try:
        host.call("probe", {"name": name, "options": json.loads(options)}, timeout_s=_START_S)
    except HostError as error:
        raise ConfigError(f"textarena/{name} cannot be built: {error}") from error
    finally:
        host.kill()
