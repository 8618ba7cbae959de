"""What holds for every env, however its author wrote it.

No step out of order, plain and finite values, a turn limit that truncates: checked where they
arise, so that no mistake of an env reaches the trainer as a number.
"""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Any, SupportsFloat

import gymnasium
import numpy as np

from agentgym.errors import ConfigError, EnvError, EpisodeOverError
from agentgym.messages import Message, assistant, user
from agentgym.trajectory import StopReason

Observation = list[Message]
Info = dict[str, Any]
ResetResult = tuple[Observation, Info]
StepResult = tuple[Observation, float, bool, bool, Info]


class _StepAfterEndError(EpisodeOverError, gymnasium.error.ResetNeeded):
    """Known to Gymnasium's users by their own class too."""


class Phase(Enum):
    """Where an env stands in its episode."""

    NEW = "not reset"
    PLAYING = "playing"
    OVER = "over"


@dataclass(slots=True)
class Contract:
    """State of one env's checks."""

    phase: Phase = Phase.NEW
    turn: int = 0
    """Steps of this episode, the one being taken included."""
    entered: bool = False
    """A checked call is running; what it calls through `super()` is not checked again."""
    closed: bool = False

    @contextmanager
    def entering(self) -> Iterator[None]:
        """A call of the author's code; one that raises leaves the env to be reset."""
        self.entered, self.phase = True, Phase.NEW
        try:
            yield
        finally:
            self.entered = False

    def before_reset(self) -> None:
        """From here on there may be something to close."""
        self.closed = False

    def accept_reset(self, result: Any) -> ResetResult:
        """What `reset` returned, checked; the episode begins."""
        observation, info = _unpack("reset", result, 2)
        checked = as_messages(observation, "reset"), _as_info(info, "reset")
        self.phase, self.turn = Phase.PLAYING, 0
        return checked

    def before_step(self, action: Any) -> Message:
        """The action as a message.

        Raises:
            gymnasium.error.ResetNeeded: there is no episode.
            EpisodeOverError: it has ended.
            ConfigError: an action is text or an assistant message.
        """
        if self.phase is Phase.NEW:
            raise gymnasium.error.ResetNeeded("call reset before step")
        if self.phase is Phase.OVER:
            raise _StepAfterEndError("the episode is over: call reset before the next step")
        message = as_action(action)
        self.turn += 1
        return message

    def accept_step(self, result: Any, max_turns: int | None) -> StepResult:
        """What `step` returned, as plain values; reaching `max_turns` truncates."""
        observation, reward, terminated, truncated, given = _unpack("step", result, 5)
        messages, info = as_messages(observation, "step"), _as_info(given, "step")
        number = as_number(reward, "the reward")
        ended = _as_bool(terminated, "terminated")
        cut = _as_bool(truncated, "truncated")
        if "rewards" in info:
            info["rewards"] = as_rewards(info["rewards"])
        if max_turns is not None and self.turn >= max_turns and not (ended or cut):
            cut = True
            info.setdefault("stop_reason", StopReason.MAX_TURNS.value)
        self.phase = Phase.OVER if ended or cut else Phase.PLAYING
        return messages, number, ended, cut, info

    def closing(self) -> bool:
        """True the first time."""
        first, self.closed = not self.closed, True
        return first


def as_action(action: Any) -> Message:
    """The policy's message; text becomes one.

    Raises:
        ConfigError: it is neither text nor an assistant message.
    """
    if isinstance(action, str):
        return assistant(str(action))
    if isinstance(action, Message) and action.role == "assistant":
        return action
    raise ConfigError(f"an action is text or an assistant message, got {action!r}")


def as_messages(observation: Any, where: str) -> Observation:
    """A list of messages; text becomes a user message.

    Raises:
        EnvError: it is neither text, nor a message, nor a list of messages.
    """
    if isinstance(observation, str):
        return [user(str(observation))]
    if isinstance(observation, Message):
        return [observation]
    if isinstance(observation, list | tuple) and all(isinstance(m, Message) for m in observation):
        return list(observation)
    raise EnvError(f"{where} returned an observation that is no list of messages: {observation!r}")


def as_number(value: Any, what: str) -> float:
    """A plain finite float.

    Raises:
        EnvError: it is none.
    """
    if not isinstance(value, SupportsFloat) or isinstance(value, str):
        raise EnvError(f"{what} must be a number, got {value!r}")
    number = float(value)
    if not math.isfinite(number):
        raise EnvError(f"{what} is {number}, which is not finite; None in `rewards` is unscored")
    return number


def as_rewards(rewards: Any) -> dict[str, float | None]:
    """Named rewards as plain floats; `None`, NaN and infinity are unscored: `None`.

    Raises:
        EnvError: one is neither a number nor `None`.
    """
    if not isinstance(rewards, Mapping):
        raise EnvError(f"rewards must be given by name, got {rewards!r}")
    return {str(name): _as_score(name, value) for name, value in rewards.items()}


def _as_score(name: Any, value: Any) -> float | None:
    if isinstance(value, SupportsFloat) and not math.isfinite(float(value)):
        return None
    return None if value is None else as_number(value, f"the reward {name!r}")


def _unpack(method: str, result: Any, size: int) -> tuple[Any, ...]:
    if not isinstance(result, tuple) or len(result) != size:
        raise EnvError(f"{method} must return {size} values, got {result!r}")
    return result


def _as_info(info: Any, method: str) -> Info:
    if not isinstance(info, dict):
        raise EnvError(f"{method} returned an info that is no dict: {info!r}")
    return dict(info)


def _as_bool(value: Any, what: str) -> bool:
    if not isinstance(value, bool | np.bool_):
        raise EnvError(f"step returned {what}={value!r}, which is no bool")
    return bool(value)
