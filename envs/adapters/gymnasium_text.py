"""Gymnasium's own envs, where what is seen and done can be said in words.

Actions of a discrete space are named, or numbered; an observation is what the env renders as text,
else its values. A message that names no action, or several, is answered and costs a turn.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from agentgym.envs.base import Env, Info, ResetResult, StepResult
from agentgym.envs.taskset import TaskSet
from agentgym.errors import ConfigError, EnvError, NotRegisteredError, boundary
from agentgym.messages import Message, user
from agentgym.trajectory import StopReason, Task

_SPLITS = ("train", "eval")
_OURS = ("agentgym", "gymnasium", "reasoning-gym", "textarena")
_MAX_MISTAKES = 3
_MAX_NAMED_ACTIONS = 100
_COLOUR = re.compile(r"\x1b\[[0-9;]*m(.*?)\x1b\[0m", re.DOTALL)

ACTION_NAMES: dict[str, tuple[str, ...]] = {
    "FrozenLake": ("left", "down", "right", "up"),
    "FrozenLake8x8": ("left", "down", "right", "up"),
    "CliffWalking": ("up", "right", "down", "left"),
    "CliffWalkingSlippery": ("up", "right", "down", "left"),
    "Taxi": ("south", "north", "east", "west", "pickup", "dropoff"),
    "Blackjack": ("stick", "hit"),
}
"""Of the envs that come with Gymnasium."""
RULES: dict[str, str] = {
    "FrozenLake": "Cross the lake from S to G; F is ice, H a hole. Brackets mark where you are.",
    "FrozenLake8x8": "Cross the lake from S to G; F is ice, H a hole. Brackets mark where you are.",
    "CliffWalking": "Walk from the start (x) to the goal (T) without stepping on the cliff (C).",
    "CliffWalkingSlippery": "Walk from the start (x) to the goal (T), never on the cliff (C).",
    "Taxi": "Fetch the passenger and drop them off at their destination. Brackets mark the taxi.",
    "Blackjack": "You see your sum, the dealer's card, and 1 if you hold a usable ace.",
}


class GymnasiumTextEnv(Env):
    """An env of Gymnasium with text or discrete spaces; reward `return`, the sum of its rewards.

    Args:
        name: id of the env, such as `FrozenLake-v1`.
        options: handed to `gymnasium.make`.
        action_names: words for the actions of a discrete space, in order.
        rules: first lines of the prompt.

    Raises:
        NotRegisteredError: there is no such env.
        ConfigError: it cannot be built, or its spaces cannot be said in words.
    """

    reward_range = (-float("inf"), float("inf"))

    def __init__(
        self,
        name: str = "",
        *,
        options: Mapping[str, Any] | None = None,
        action_names: Sequence[str] | None = None,
        rules: str | None = None,
    ) -> None:
        self.name = name
        self._inner = _make(name, dict(options or {}))
        short = name.rpartition("-v")[0]
        self._rules = RULES.get(short, "") if rules is None else rules
        self._actions = _words(self._inner.action_space, action_names or ACTION_NAMES.get(short))
        _refuse_unspeakable(self._inner.observation_space, name)
        self._total = 0.0
        self._mistakes = 0

    def tasks(self, split: str = "train") -> TaskSet:
        """Endless episodes by index: even numbers to train on, odd ones held out.

        Raises:
            ConfigError: the split is neither "train" nor "eval".
        """
        if split not in _SPLITS:
            raise ConfigError(f"split must be one of {list(_SPLITS)}, got {split!r}")
        parity = _SPLITS.index(split)
        return TaskSet.procedural(
            lambda index: Task(id=f"{split}-{index}", data={"episode": 2 * index + parity})
        )

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> ResetResult:
        """Begin the episode of a task; its number is the seed."""
        task = self.pick_task(options)
        self._total, self._mistakes = 0.0, 0
        with boundary(EnvError, f"gymnasium/{self.name}: reset"):
            observation, _ = self._inner.reset(seed=int(task["episode"]))
            seen = self._describe(observation)
        asked = "\n\n".join(filter(None, (self._rules, self._how_to_act(), seen)))
        return [user(asked)], {"task_id": task.id}

    def step(self, action: Any) -> StepResult:
        """Play the one action that a message names."""
        assert isinstance(action, Message)
        move = self._read(action.content)
        if move is None:
            return self._refuse()
        self._mistakes = 0
        with boundary(EnvError, f"gymnasium/{self.name}: step"):
            observation, reward, terminated, truncated, _ = self._inner.step(move)
            seen = self._describe(observation)
        self._total += float(reward)
        info: Info = {"rewards": {"return": self._total}} if terminated or truncated else {}
        return [user(seen)], float(reward), bool(terminated), bool(truncated), info

    def close(self) -> None:
        """Close the env inside."""
        with boundary(EnvError, f"gymnasium/{self.name}: close"):
            self._inner.close()

    async def acut(self) -> dict[str, float | None]:
        """What was collected so far."""
        return {"return": self._total} if self.end_episode() else {}

    def _read(self, text: str) -> Any:
        """The action a text names; `None` if it names none, or more than one."""
        if self._actions is None:
            return text if self._inner.action_space.contains(text) else None
        marked = re.findall(r"action\W{0,3}:\W{0,3}(.+)", text, re.IGNORECASE)
        words = re.findall(r"[\w-]+", (marked[-1] if marked else text).lower())
        named = {self._actions[word] for word in words if word in self._actions}
        return named.pop() if len(named) == 1 else None

    def _refuse(self) -> StepResult:
        self._mistakes += 1
        if self._mistakes < _MAX_MISTAKES:
            return [user(f"That is no action. {self._how_to_act()}")], 0.0, False, False, {}
        info = {"rewards": {"return": self._total}, "stop_reason": StopReason.MALFORMED.value}
        return [], 0.0, False, True, info

    def _how_to_act(self) -> str:
        if self._actions is None:
            return "Answer with the action, and nothing else."
        names = list(self._actions)
        listed = ", ".join(names) if len(names) <= 20 else f"{names[0]} to {names[-1]}"
        return f"Answer with exactly one action: {listed}."

    def _describe(self, observation: Any) -> str:
        if isinstance(observation, str):
            return observation
        values = f"Observation: {_plain(observation)}"
        if self._inner.render_mode != "ansi":
            return values
        drawn = _COLOUR.sub(r"[\1]", str(self._inner.render())).strip("\n")
        return f"{drawn}\n{values}"


def _make(name: str, options: dict[str, Any]) -> gymnasium.Env[Any, Any]:
    if name not in gymnasium.registry:
        known = [spec.id for spec in gymnasium.registry.values() if spec.namespace not in _OURS]
        raise NotRegisteredError("env of Gymnasium", name, sorted(known))
    with boundary(ConfigError, f"gymnasium/{name} cannot be built"):
        env = gymnasium.make(name, disable_env_checker=True, **options)
        if "render_mode" in options or "ansi" not in env.metadata.get("render_modes", ()):
            return env
        env.close()
        return gymnasium.make(name, disable_env_checker=True, render_mode="ansi", **options)


def _words(space: gymnasium.Space[Any], names: Sequence[str] | None) -> dict[str, int] | None:
    """Actions by word; `None` if the action is the text itself."""
    if isinstance(space, spaces.Text):
        return None
    if not isinstance(space, spaces.Discrete) or space.n > _MAX_NAMED_ACTIONS:
        raise ConfigError(f"its actions {space} cannot be said: use Text or a small Discrete space")
    numbers = range(int(space.start), int(space.start + space.n))
    if names is None:
        return {str(number): number for number in numbers}
    if len(names) != space.n or len({name.lower() for name in names}) != space.n:
        raise ConfigError(f"action_names must name {space.n} actions, got {list(names)}")
    return {name.lower(): number for name, number in zip(names, numbers, strict=True)}


def _refuse_unspeakable(space: gymnasium.Space[Any], name: str) -> None:
    if isinstance(space, spaces.Text | spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
        return
    if isinstance(space, spaces.Tuple | spaces.Dict):
        parts = space.spaces if isinstance(space, spaces.Tuple) else space.spaces.values()
        for part in parts:
            _refuse_unspeakable(part, name)
        return
    raise ConfigError(
        f"gymnasium/{name}: its observations {space} cannot be said in words; "
        "wrap it so that they are text or discrete"
    )


def _plain(value: Any) -> Any:
    """Values of numpy as Python's own."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, tuple):
        return tuple(_plain(item) for item in value)
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value
